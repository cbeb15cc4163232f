//! The program behind `marcato serve`: sites, certificates and the life of the server.
//!
//! [`run`] serves until a signal ends it. What it prints goes to a function of the caller.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod error;
mod options;
mod run;
mod site;

pub use error::ServeError;
pub use options::{Content, Options, Tls};
pub use run::{Print, run};
