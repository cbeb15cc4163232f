//! TOML texts in which every value knows its position, for readers that report all errors at once.
//!
//! | module | contents |
//! |---|---|
//! | `document` | the tree of a text: [`Table`], [`Item`], [`Value`] and their [`Place`] |
//! | `fault`, `faults` | an error with its line, as people see it: [`Fault`]; all of a text: [`Faults`], [`Report`] |
//! | `keyed` | tables whose keys are declared once: [`keyed!`] |
//! | [`form`] | forms of values: how each is read and written |
//! | `keys` | strict reading of a table: [`Keys`] |
//! | `pairs` | a table that is written: [`Pairs`] |
//! | [`schema`] | the keys of a table, their meanings and defaults, for the reference |
//! | [`nearest`] | suggestions for mistyped words |
//! | [`quantity`] | numbers with units: `20 ms`, `64 KiB` |
//!
//! ```
//! use marcato_document::{Sources, parse};
//!
//! let text = "idle = 75\nidle = 80\n";
//! let mut faults = Vec::new();
//! let (table, is_readable) = parse(0, text, &[], |place, problem| faults.push((place, problem)));
//! assert!(is_readable && table.get("idle").is_some());
//! let sources = Sources(vec![("site.toml".to_owned(), text.to_owned())]);
//! let (place, problem) = faults.remove(0);
//! let shown = sources.locate(place, problem).to_string();
//! assert!(shown.starts_with("site.toml:2:1: `idle` is given twice: remove one"), "{shown}");
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod document;
mod fault;
mod faults;
pub mod form;
mod keyed;
mod keys;
pub mod nearest;
mod pairs;
pub mod quantity;
pub mod schema;
mod text;

pub use document::{Item, Key, Origin, Place, Table, Value, float, parse, parse_value, quote};
pub use fault::{Fault, Sources};
pub use faults::{AddedKinds, Faults, Format, MAX_FAULTS, Report};
pub use keyed::{Form, Keyed, WriteForm, WriteKeyed, written};
pub use keys::{Keys, integer_of, no_table, quantity_of};
pub use pairs::{Pairs, array, strings};
pub use text::{NoText, text};
