//! Suggestions for mistyped words.

/// Longest word that may be a slip, in bytes.
const MAX_WORD: usize = 128;

/// Returns the word of `among` nearest to `word`; `None` if it differs in more than a third of the
/// letters, and more than one.
pub fn nearest<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // All valid names are short, so a longer word cannot be a slip. The limit also bounds the time.
    if word.len() > MAX_WORD {
        return None;
    }
    let letters = word.chars().count();
    let mut best = None;
    let mut most = (letters / 3).max(1);
    for other in among {
        if let Some(distance) = distance(word, other, most)
            && best.is_none_or(|(least, _)| distance < least)
        {
            best = Some((distance, other));
            most = distance;
        }
    }
    best.map(|(_, other)| other)
}

/// Returns the edit distance of two words (optimal string alignment), without regard to case and to the
/// difference between `_` and `-`. `None` means that it exceeds `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    // Most words differ too much in length alone.
    if a.chars().count().abs_diff(b.chars().count()) > most {
        return None;
    }
    let fold = |word: &str| word.to_ascii_lowercase().replace('_', "-");
    Some(strsim::osa_distance(&fold(a), &fold(b))).filter(|&distance| distance <= most)
}

/// Returns `did you mean X?` for the nearest word, or else a list of the valid words.
pub fn hint<'a>(word: &str, among: impl IntoIterator<Item = &'a str> + Clone) -> String {
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
        let near = |a, b| distance(a, b, 3);
        assert_eq!((near("", "abc"), near("abc", "abc"), near("abc", "acb")), (Some(3), Some(0), Some(1)));
        assert_eq!((near("abcd", "wxyz"), near("", "abcd"), near("abcdef", "badcfe")), (None, None, Some(3)));
    }
}
