//! Addresses of CoDel's code in the kernel, by which its drops are told on kernels that give no reason.

use std::cell::LazyCell;
use std::fs;

/// Functions in which CoDel drops packets that it takes from its queue: of `sch_codel` and `sch_fq_codel`.
const FUNCTIONS: [&str; 2] = ["codel_qdisc_dequeue", "fq_codel_dequeue"];
/// Most that a function can have: more is a symbol without a successor.
const MAX_FUNCTION: u64 = 64 << 10;

/// First address of each function, and the one after its last; zeros for a function that is not there.
pub(crate) type CodelText = [[u64; 2]; FUNCTIONS.len()];

/// Returns the addresses of CoDel's code, as far as the kernel is willing to tell them. The modules have
/// to be loaded: queues first.
pub(crate) fn codel_text() -> CodelText {
    in_symbols(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

/// Finds the functions among the lines `address type name [module]`, in any order.
fn in_symbols(symbols: &str) -> CodelText {
    // A kernel has more than 100 000 symbols: all are taken apart only where there is CoDel, and once.
    let addresses: LazyCell<Vec<u64>, _> =
        LazyCell::new(|| symbols.lines().filter_map(code).map(|(address, _)| address).collect());
    FUNCTIONS.map(|function| {
        let mut own = symbols.lines().filter(|line| line.contains(function)).filter_map(code);
        let Some((from, _)) = own.find(|(_, name)| is(name, function)) else { return [0; 2] };
        // Symbols of modules are in no order.
        let next = addresses.iter().copied().filter(|address| *address > from).min();
        let to = next.filter(|to| to - from <= MAX_FUNCTION).unwrap_or(from + MAX_FUNCTION);
        [from, to]
    })
}

/// Address and name of a function, or nothing for a line of something else or without its address.
fn code(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok().filter(|address| *address > 0)?;
    matches!(kind, "t" | "T").then_some((address, name))
}

/// Returns whether a symbol is this function: compilers put underscores before, and clones have a suffix.
fn is(name: &str, function: &str) -> bool {
    let bare = name.trim_start_matches('_');
    bare == function || bare.strip_prefix(function).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_modules_end_where_the_next_symbol_begins() {
        let symbols = "ffffffff81000000 T _stext\n\
                       ffffffffc0a01200 t codel_init\t[sch_codel]\n\
                       ffffffffc0a01000 t __codel_qdisc_dequeue\t[sch_codel]\n\
                       ffffffffc0a01100 r codel_name\t[sch_codel]\n\
                       ffffffffc0b00000 t fq_codel_dequeue.isra.0\t[sch_fq_codel]\n";
        let codel = [0xffff_ffff_c0a0_1000, 0xffff_ffff_c0a0_1200];
        let last = [0xffff_ffff_c0b0_0000, 0xffff_ffff_c0b1_0000];
        assert_eq!(in_symbols(symbols), [codel, last]);
    }

    #[test]
    fn hidden_or_missing_functions_have_no_addresses() {
        for symbols in [
            "",
            "0000000000000000 t __codel_qdisc_dequeue\t[sch_codel]\n",
            "ffffffffc0a01000 t codel_qdisc_dequeue_peeked\n",
            "ffffffffc0a01000 d codel_qdisc_dequeue\n",
            "nonsense\nx t codel_qdisc_dequeue\n",
        ] {
            assert_eq!(in_symbols(symbols), CodelText::default(), "{symbols}");
        }
    }
}
