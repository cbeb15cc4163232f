//! What somebody may have meant.

/// The word of `among` that lies nearest to `word`, if any lies near: at most a third of its letters are wrong.
pub(crate) fn nearest<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names are short; whoever writes a longer word means none of them.
    if word.len() > 2 * crate::limit::MAX_NAME {
        return None;
    }
    let letters = word.chars().count();
    let most = (letters / 3).max(1);
    among
        .into_iter()
        .filter(|other| other.chars().count().abs_diff(letters) <= most)
        .map(|other| (distance(word, other), other))
        .filter(|&(distance, _)| distance <= most)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, other)| other)
}

/// How many letters have to be put in, taken out, changed or swapped with their neighbour to make one word of the other
/// (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let fold = |word: &str| -> Vec<char> {
        word.chars().map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    let (a, b) = (fold(a), fold(b));
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// `: did you mean X?` for the nearest, else a list of what there is.
pub(crate) fn hint<'a>(word: &str, among: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(word, among.clone()) {
        return format!("did you mean `{near}`?");
    }
    let all: Vec<String> = among.clone().into_iter().take(20).map(|name| format!("`{name}`")).collect();
    let more = among.into_iter().nth(20).map_or("", |_| " and more");
    match all.len() {
        0 => "there is none at all".to_owned(),
        1 => format!("there is only {}", all[0]),
        _ => format!("there are {}{more}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_forgiven() {
        let among = ["bottleneck", "access", "uplink"];
        assert_eq!(nearest("bottlenek", among), Some("bottleneck"));
        assert_eq!(nearest("bottelneck", among), Some("bottleneck"));
        assert_eq!(nearest("acess", among), Some("access"));
        assert_eq!(nearest("downlink", among), None);
        assert_eq!(nearest("receive_buffer", ["receive-buffer"]), Some("receive-buffer"));
        assert_eq!((distance("", "abc"), distance("abc", "acb"), distance("abc", "abc")), (3, 1, 0));
    }
}
