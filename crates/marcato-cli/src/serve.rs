//! `marcato serve`: options of the server, from the command line.

use std::io::Write;

use marcato_serve::config::{AccessLog, Located};
use marcato_serve::{Content, Diagnostics, LogFormat, LogLevel, Options, ServeError, Source, Tls};

use crate::Status;
use crate::arguments::{LevelName, LineFormat, MessageFormat, Serve};
use crate::output;

pub(crate) fn run(asked: Serve, stdout: &mut dyn Write) -> Result<Status, ServeError> {
    let (check, print_config) = (asked.check, asked.print_config);
    let level = match asked.log_level {
        LevelName::Off => LogLevel::Off,
        LevelName::Error => LogLevel::Error,
        LevelName::Warn => LogLevel::Warn,
        LevelName::Info => LogLevel::Info,
        LevelName::Debug => LogLevel::Debug,
    };
    Diagnostics { level, is_json: asked.log_format == MessageFormat::Json }.begin();
    let source = source(asked);
    let mut print = |text: &str| output::print(stdout, text);
    if print_config {
        print(&marcato_serve::print_config(&source)?).map_err(ServeError::Print)?;
    } else if check {
        print(&marcato_serve::check(&source)?).map_err(ServeError::Print)?;
    } else {
        marcato_serve::run(&source, &mut print)?;
    }
    Ok(Status::Ok)
}

fn source(asked: Serve) -> Source {
    if let Some(file) = asked.config {
        return Source::File(file);
    }
    let content = match (asked.directory, asked.to) {
        (_, Some(uri)) => Content::Origin(uri),
        // The parser asks for a directory then.
        (directory, None) => {
            Content::Directory { path: directory.unwrap_or_default(), listing: asked.listing }
        }
    };
    let tls = match (asked.cert, asked.key) {
        _ if asked.plaintext => Tls::Cleartext,
        (Some(chain), Some(key)) => Tls::Files { chain, key },
        _ => Tls::SelfSigned,
    };
    let format = match asked.access_log_format {
        LineFormat::Pairs => LogFormat::Pairs,
        LineFormat::Common => LogFormat::Common,
        LineFormat::Combined => LogFormat::Combined,
        LineFormat::Json => LogFormat::Json,
    };
    Source::Options(Options {
        content,
        listen: asked.listen.into_iter().flat_map(|at| at.0).collect(),
        tls,
        coupled: asked.coupled,
        http3: !asked.no_http3,
        access_log: (!asked.quiet).then(|| AccessLog { format, file: asked.access_log.map(Located::from) }),
        metrics: asked.metrics,
        watch: asked.watch,
    })
}
