//! The program behind `marcato serve`: sites, certificates and the life of the server.
//!
//! [`run`] serves until a signal ends it. What it prints goes to a function of the caller. [`config`] is
//! the configuration file.
//!
//! A configuration is read twice. [`config::Config`] is what the text says: no other file is opened. Then
//! all that it names is opened at once: directories, certificates, origins, sockets. Only if both are
//! without errors does the server use it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod acme;
mod admission;
mod certificates;
pub mod config;
mod covered;
mod diagnostics;
mod dns_hook;
mod error;
mod error_pages;
mod listeners;
mod monitor;
mod opened;
mod options;
mod passwords;
mod router;
mod run;
mod supervisor;

pub use diagnostics::{Diagnostics, LogLevel};
pub use error::ServeError;
pub use marcato_web::LogFormat;
pub use options::{Content, Options, Tls};
pub use run::{Print, Source, check, print_config, run};
