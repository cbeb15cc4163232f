//! List of subscribers: a CSV file with the columns of LibreQoS's `ShapedDevices.csv`, or fewer.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use marcato_kernel::{Prefix, Subscriber};
use marcato_units::Rate;

use super::CrqError;
use super::settings::DirectionName;

/// Most errors of a file that are told.
const MOST_TOLD: usize = 50;

/// Subscriber as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) min: Rate,
    pub(super) max: Rate,
    pub(super) prefixes: Vec<Prefix>,
}

/// Mistake of a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrong {
    line: u64,
    why: String,
}

/// Columns that are read, by the letters of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Column {
    Name,
    Ipv4,
    Ipv6,
    Min,
    Max,
}

impl Column {
    /// Names that a column may have, without case, blanks and signs; the first is the one that is told.
    const fn names(self, direction: DirectionName) -> &'static [&'static str] {
        match (self, direction) {
            (Self::Name, _) => &["Circuit ID", "circuit", "name", "subscriber"],
            (Self::Ipv4, _) => &["IPv4"],
            (Self::Ipv6, _) => &["IPv6"],
            (Self::Min, DirectionName::Download) => &["Download Min Mbps", "download min"],
            (Self::Max, DirectionName::Download) => &["Download Max Mbps", "download max", "download"],
            (Self::Min, DirectionName::Upload) => &["Upload Min Mbps", "upload min"],
            (Self::Max, DirectionName::Upload) => &["Upload Max Mbps", "upload max", "upload"],
        }
    }

    /// Returns whether a header names this column.
    fn is(self, header: &str, direction: DirectionName) -> bool {
        let letters = |text: &str| -> String {
            text.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect()
        };
        self.names(direction).iter().any(|name| letters(name) == letters(header))
    }
}

/// Reads the subscribers of a file for one direction. All mistakes are told together.
pub(super) fn read(path: &Path, direction: DirectionName) -> Result<Vec<Listed>, CrqError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| CrqError::Subscribers { path: path.to_owned(), source })?;
    parse(&text, direction).map_err(|wrong| {
        let told =
            wrong.iter().take(MOST_TOLD).map(|it| format!("{}:{}: {}", path.display(), it.line, it.why));
        let mut told: Vec<String> = told.collect();
        if wrong.len() > MOST_TOLD {
            told.push(format!("and {} more", wrong.len() - MOST_TOLD));
        }
        CrqError::List(told)
    })
}

/// Reader of rows that collects mistakes.
struct Rows<'a> {
    direction: DirectionName,
    columns: HashMap<Column, usize>,
    record: &'a csv::StringRecord,
    line: u64,
    wrong: &'a mut Vec<Wrong>,
}

fn parse(text: &str, direction: DirectionName) -> Result<Vec<Listed>, Vec<Wrong>> {
    // Spreadsheets begin files with a mark of the byte order.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let unreadable = |error: &csv::Error| Wrong {
        line: error.position().map_or(1, csv::Position::line),
        why: match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!(
                    "the line has {len} fields, and the header {expected_len}: write all fields, empty ones too"
                )
            }
            _ => format!("{error}: write fields between commas"),
        },
    };
    let header = reader.headers().cloned().map_err(|error| vec![unreadable(&error)])?;
    let place =
        |column: Column| header.iter().position(|name| column.is(name, direction)).map(|at| (column, at));
    let columns: HashMap<Column, usize> =
        [Column::Name, Column::Ipv4, Column::Ipv6, Column::Min, Column::Max]
            .into_iter()
            .filter_map(place)
            .collect();
    let mut wrong = Vec::new();
    let absent = |column: Column| !columns.contains_key(&column);
    for column in [Column::Name, Column::Max] {
        if absent(column) {
            let names = column.names(direction);
            wrong.push(Wrong {
                line: 1,
                why: format!(
                    "there is no column `{}`: name it so in the first line, or `{}`",
                    names[0], names[1]
                ),
            });
        }
    }
    if absent(Column::Ipv4) && absent(Column::Ipv6) {
        let why = "there is no column of addresses: name one `IPv4` or `IPv6` in the first line".to_owned();
        wrong.push(Wrong { line: 1, why });
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut all: Vec<(u64, Listed)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut owners: BTreeMap<Prefix, (String, u64)> = BTreeMap::new();
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                wrong.push(unreadable(&error));
                continue;
            }
        }
        let line = record.position().map_or(0, csv::Position::line);
        if record.iter().all(str::is_empty) {
            continue;
        }
        let mut rows = Rows { direction, columns: columns.clone(), record: &record, line, wrong: &mut wrong };
        let Some(listed) = rows.listed() else { continue };
        for prefix in &listed.prefixes {
            match owners.get(prefix) {
                Some((name, before)) => wrong.push(Wrong {
                    line,
                    why: format!("{prefix} is of `{name}` already, in line {before}: leave it in one line"),
                }),
                None => drop(owners.insert(*prefix, (listed.name.clone(), line))),
            }
        }
        match places.get(&listed.name) {
            None => {
                places.insert(listed.name.clone(), all.len());
                all.push((line, listed));
            }
            Some(&at) => {
                let (before, same) = &mut all[at];
                if (same.min, same.max) != (listed.min, listed.max) {
                    let why = format!(
                        "`{}` has other rates in line {before}: a subscriber has one pair of rates",
                        listed.name
                    );
                    wrong.push(Wrong { line, why });
                }
                same.prefixes.extend(listed.prefixes);
            }
        }
    }
    if all.is_empty() && wrong.is_empty() {
        wrong.push(Wrong { line: 1, why: "there is no subscriber: write one in a line".to_owned() });
    }
    if all.len() > Subscriber::MOST {
        let why = format!("there are {} subscribers: a device has {} at most", all.len(), Subscriber::MOST);
        wrong.push(Wrong { line: 1, why });
    }
    if owners.len() > Prefix::MOST {
        let why = format!("there are {} addresses: a device has {} at most", owners.len(), Prefix::MOST);
        wrong.push(Wrong { line: 1, why });
    }
    if wrong.is_empty() { Ok(all.into_iter().map(|(_, listed)| listed).collect()) } else { Err(wrong) }
}

impl Rows<'_> {
    fn field(&self, column: Column) -> &str {
        self.columns.get(&column).and_then(|at| self.record.get(*at)).unwrap_or_default()
    }

    fn fail(&mut self, why: String) {
        self.wrong.push(Wrong { line: self.line, why });
    }

    /// Reads the row, unless something of it is wrong.
    fn listed(&mut self) -> Option<Listed> {
        let before = self.wrong.len();
        let name = self.field(Column::Name).to_owned();
        if name.is_empty() {
            self.fail(format!(
                "the field `{}` is empty: give the subscriber a name",
                self.header(Column::Name)
            ));
        } else if name.len() > Subscriber::MOST_NAME || name.chars().any(char::is_control) {
            self.fail(format!("the name is no word of {} bytes at most: shorten it", Subscriber::MOST_NAME));
        }
        let mut prefixes = Vec::new();
        for column in [Column::Ipv4, Column::Ipv6] {
            let words: Vec<String> = self
                .field(column)
                .split(|it: char| it == ',' || it == ';' || it.is_whitespace())
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            for word in words {
                match word.parse::<Prefix>() {
                    Err(why) => self.fail(why),
                    Ok(prefix) if prefix.is_ipv4() != (column == Column::Ipv4) => {
                        self.fail(format!("{word} is in the column of the other family: move it"));
                    }
                    Ok(prefix) => prefixes.push(prefix),
                }
            }
        }
        if prefixes.is_empty() && self.wrong.len() == before {
            self.fail("the subscriber has no address: write one below `IPv4` or `IPv6`".to_owned());
        }
        let max = self.rate(Column::Max);
        if max.is_some_and(|max| max.as_bps() < 8000) {
            self.fail(format!("`{}` is too low: write 0.008 or more", self.header(Column::Max)));
        }
        let min =
            if self.field(Column::Min).is_empty() { Some(Rate::default()) } else { self.rate(Column::Min) };
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            let (low, high) = (self.header(Column::Min).to_owned(), self.header(Column::Max).to_owned());
            self.fail(format!("`{low}` is more than `{high}`: lower it"));
        }
        let (min, max) = (min?, max?);
        (self.wrong.len() == before).then_some(Listed { name, min, max, prefixes })
    }

    /// Name of a column in the file's own words, as far as errors go.
    fn header(&self, column: Column) -> &'static str {
        column.names(self.direction)[0]
    }

    /// Reads a rate in Mbit/s.
    fn rate(&mut self, column: Column) -> Option<Rate> {
        let text = self.field(column).to_owned();
        let rate = mbps(&text);
        if rate.is_none() {
            let name = self.header(column);
            self.fail(format!(
                "`{name}` is `{text}`, which is no number of Mbit/s up to 100000: write 50 or 2.5"
            ));
        }
        rate
    }
}

/// Reads a decimal number of Mbit/s.
fn mbps(text: &str) -> Option<Rate> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + part.len() == 0 || part.len() > 6 || !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let bits: u64 = format!("{part:0<6}").parse().ok()?;
    let rate = whole.checked_mul(1_000_000)?.checked_add(bits)?;
    (rate <= 100_000_000_000).then(|| Rate::from_bps(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File as LibreQoS has it.
    const SHAPED_DEVICES: &str = "\u{feff}\
Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment
# a comment
1,\"968 Circle St., Gurnee, IL\",1,Device 1,AP_A,,\"100.64.0.1, 100.64.0.14\",,25,5,155,20,
1,\"968 Circle St., Gurnee, IL\",2,Device 2,AP_A,,,fdd7:b724:0:200::/56,25,5,155,20,

two,Elsewhere,3,Device 3,,,100.64.1.0/24,,,,2.5,1,
";

    fn errors(text: &str) -> Vec<String> {
        let wrong = parse(text, DirectionName::Download).unwrap_err();
        wrong.into_iter().map(|it| format!("{}: {}", it.line, it.why)).collect()
    }

    #[test]
    fn a_file_of_libreqos_is_read_as_it_is() {
        let listed = parse(SHAPED_DEVICES, DirectionName::Download).unwrap();
        let prefixes =
            |names: &[&str]| -> Vec<Prefix> { names.iter().map(|it| it.parse().unwrap()).collect() };
        let one = Listed {
            name: "1".to_owned(),
            min: Rate::from_mbps(25),
            max: Rate::from_mbps(155),
            prefixes: prefixes(&["100.64.0.1", "100.64.0.14", "fdd7:b724:0:200::/56"]),
        };
        let two = Listed {
            name: "two".to_owned(),
            min: Rate::default(),
            max: Rate::from_kbps(2500),
            prefixes: prefixes(&["100.64.1.0/24"]),
        };
        assert_eq!(listed, [one, two]);
        let upload = parse(SHAPED_DEVICES, DirectionName::Upload).unwrap();
        assert_eq!((upload[0].min, upload[0].max), (Rate::from_mbps(5), Rate::from_mbps(20)));
    }

    #[test]
    fn a_short_file_needs_names_addresses_and_rates_only() {
        let listed =
            parse("name,ipv4,download,upload\nanna,192.0.2.7,50,10\n", DirectionName::Download).unwrap();
        assert_eq!((listed.len(), listed[0].max), (1, Rate::from_mbps(50)));
        let wrong = errors("ipv4 address,speed\n192.0.2.7,50\n");
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert_eq!(
            wrong[0],
            "1: there is no column `Circuit ID`: name it so in the first line, or `circuit`"
        );
        assert!(wrong[2].contains("name one `IPv4` or `IPv6`"));
        assert_eq!(errors("name,ipv4,download\n"), ["1: there is no subscriber: write one in a line"]);
    }

    #[test]
    fn the_example_is_a_file_of_both_directions() {
        let example = include_str!("../../../../contrib/crq/subscribers.csv");
        for (direction, mbps) in [(DirectionName::Download, [100, 50]), (DirectionName::Upload, [20, 10])] {
            let listed = parse(example, direction).unwrap();
            assert_eq!(listed.iter().map(|it| it.max).collect::<Vec<_>>(), mbps.map(Rate::from_mbps));
            assert_eq!((listed[0].prefixes.len(), listed[1].prefixes.len()), (2, 2));
        }
    }

    #[test]
    fn all_mistakes_of_a_file_are_told_with_line_and_remedy() {
        let wrong = errors(
            "name,ipv4,ipv6,download min,download\n\
             anna,192.0.2.1,,,50\n\
             ,192.0.2.2,,,50\n\
             berta,192.0.2.1,,,50\n\
             carl,192.0.2.300,,,50\n\
             dora,192.0.2.4/33,,,50\n\
             emil,192.0.2.5/24,,,50\n\
             fritz,,,,50\n\
             gerda,fd00::1,,,50\n\
             hugo,192.0.2.8,,60,50\n\
             ida,192.0.2.9,,,fast\n\
             anna,192.0.2.10,,,60\n\
             julia,192.0.2.11,,50\n\
             karl,192.0.2.12,,,0\n",
        );
        let expected = [
            "3: the field `Circuit ID` is empty: give the subscriber a name",
            "4: 192.0.2.1 is of `anna` already, in line 2: leave it in one line",
            "5: `192.0.2.300` is no address: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/56",
            "6: `192.0.2.4/33` is no address: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/56",
            "7: 192.0.2.5/24 has bits behind its prefix: write 192.0.2.0/24, or 192.0.2.5 for one address",
            "8: the subscriber has no address: write one below `IPv4` or `IPv6`",
            "9: fd00::1 is in the column of the other family: move it",
            "10: `Download Min Mbps` is more than `Download Max Mbps`: lower it",
            "11: `Download Max Mbps` is `fast`, which is no number of Mbit/s up to 100000: write 50 or 2.5",
            "12: `anna` has other rates in line 2: a subscriber has one pair of rates",
            "13: the line has 4 fields, and the header 5: write all fields, empty ones too",
            "14: `Download Max Mbps` is too low: write 0.008 or more",
        ];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn rates_are_decimal_numbers_of_mbit() {
        let bits = |text| mbps(text).map(Rate::as_bps);
        assert_eq!(
            (bits("50"), bits("2.5"), bits(".5"), bits("0")),
            (Some(50_000_000), Some(2_500_000), Some(500_000), Some(0))
        );
        for wrong in ["", ".", "-1", "1e3", "50M", "1.2345678", "100001", "99999999999999999999", "+5"] {
            assert_eq!(bits(wrong), None, "{wrong}");
        }
    }
}
