//! Documents as CSV.

use crate::Document;

/// Implements [`Document::to_csv`].
pub(crate) fn of(document: &Document) -> String {
    let header = [
        "id", "what", "unit", "paper", "measured", "virtual", "n", "ci95", "lo", "hi", "ok", "world",
        "version", "commit", "seeds", "quick", "config",
    ];
    let seeds: Vec<String> = document.seeds().iter().map(u64::to_string).collect();
    let common = [
        document.world().to_string(),
        document.version().to_owned(),
        document.commit().to_owned(),
        seeds.join(" "),
        document.quick().to_string(),
        // Only strings, numbers and maps with string keys: serialising them cannot fail.
        serde_json::to_string(document.settings()).unwrap_or_default(),
    ];
    let mut writer = ::csv::Writer::from_writer(vec![]);
    // Writing to memory cannot fail, and every record has as many fields as the header.
    let _ = writer.write_record(header);
    for row in document.rows() {
        let own = [
            row.id().to_owned(),
            row.what().to_owned(),
            row.unit().to_string(),
            number(row.paper_value()),
            number(row.measured_value()),
            number(row.virtual_value()),
            row.n().to_string(),
            number(row.ci95()),
            number(row.lo()),
            number(row.hi()),
            row.ok().map(|ok| ok.to_string()).unwrap_or_default(),
        ];
        let _ = writer.write_record(own.iter().chain(&common));
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// A number as JSON spells it, or an empty field.
fn number(value: Option<f64>) -> String {
    value.and_then(|value| serde_json::to_string(&value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMMIT, Config, Provenance, Row, Unit, VERSION};

    fn document() -> Document {
        Document::new("cats", Provenance::of_seeds([1, 2]))
            .config(Config::new().set("cc", "bbr1").set("mss_bytes", 1000))
            .row(Row::new("cats.a", "P0, \"critical\"\nHTML", Unit::Ms).paper(130.0).samples(&[1.0, 2.0]))
            .row(Row::new("cats.b", "plain", Unit::Percent).measured(f64::NAN).at_least(1.5))
    }

    #[test]
    fn quotes_commas_and_newlines_are_escaped_and_null_is_empty() {
        let tail = format!(
            "virtual,{VERSION},{COMMIT},1 2,false,\"{{\"\"cc\"\":\"\"bbr1\"\",\"\"mss_bytes\"\":1000}}\"\n"
        );
        let expected = format!(
            "id,what,unit,paper,measured,virtual,n,ci95,lo,hi,ok,world,version,commit,seeds,quick,config\n\
             cats.a,\"P0, \"\"critical\"\"\nHTML\",ms,130.0,1.5,,2,6.353102368087349,,,,{tail}\
             cats.b,plain,%,,,,1,,1.5,,false,{tail}"
        );
        assert_eq!(of(&document()), expected);
    }

    #[test]
    fn a_reader_gets_back_what_was_written() {
        let text = of(&document());
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        assert_eq!(&records[0][1], "P0, \"critical\"\nHTML");
        assert_eq!(&records[1][16], r#"{"cc":"bbr1","mss_bytes":1000}"#);
    }
}
