//! `marcato serve`: options of the server, from the command line.

use std::io::Write;

use marcato_serve::{Content, Options, ServeError, Source, Tls};

use crate::Status;
use crate::arguments::Serve;
use crate::output;

pub(crate) fn run(asked: Serve, stdout: &mut dyn Write) -> Result<Status, ServeError> {
    let check = asked.check;
    let source = source(asked);
    let mut print = |text: &str| output::print(stdout, text);
    if check {
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
        // The parser requires a directory then.
        (directory, None) => {
            Content::Directory { path: directory.unwrap_or_default(), listing: asked.listing }
        }
    };
    let tls = match (asked.cert, asked.key) {
        _ if asked.plaintext => Tls::Cleartext,
        (Some(chain), Some(key)) => Tls::Files { chain, key },
        _ => Tls::SelfSigned,
    };
    Source::Options(Options {
        content,
        listen: asked.listen,
        tls,
        coupled: asked.coupled.into(),
        access_log: !asked.quiet,
        metrics: asked.metrics,
        watch: asked.watch,
    })
}
