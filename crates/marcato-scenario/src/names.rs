//! Names of nodes, links, flows and messages.

use marcato_document::nearest::hint;
use marcato_document::{Faults, Place};

/// Checks a name, and adds a fault if it is invalid.
pub(crate) fn check_name(what: &str, name: &str, place: Place, faults: &Faults) -> bool {
    let wrong = wrong_name(what, name);
    let is_right = wrong.is_none();
    wrong.into_iter().for_each(|problem| faults.add(place, problem));
    is_right
}

/// Returns the problem of an invalid name. Names appear in keys, file names and commands, which
/// limits their characters.
pub(crate) fn wrong_name(what: &str, name: &str) -> Option<String> {
    let most = crate::limit::MAX_NAME;
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() {
        return Some(format!("the name of a {what} is empty: state what it is called"));
    }
    if name.len() > most {
        return Some(format!(
            "the name of a {what} has {} bytes, but at most {most} are possible",
            name.len()
        ));
    }
    let bad = name.chars().find(|c| !u8::try_from(*c).is_ok_and(good))?;
    Some(format!("{bad:?} cannot be in the name of a {what}: letters, digits, - and _ can"))
}

/// Checks that `name` is in the list, and adds a fault if not.
pub(crate) fn check_known<'n>(
    what: &str,
    name: &str,
    place: Place,
    among: impl IntoIterator<Item = &'n str> + Clone,
    faults: &Faults,
) -> bool {
    let known = among.clone().into_iter().any(|one| one == name);
    // An item that could not be read has an empty name and was already reported.
    if !known && !name.is_empty() && faults.has_names(what) {
        if faults.is_full() {
            faults.add(place, String::new());
            return false;
        }
        let advice = hint(name, among);
        faults.add(place, format!("there is no {what} `{name}`: {advice}"));
    }
    known
}
