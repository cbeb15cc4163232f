//! `marcato serve`: options of the server, from the command line.

use std::io::Write;

use marcato_serve::{Content, Options, ServeError, Tls};

use crate::Status;
use crate::arguments::Serve;
use crate::output;

pub(crate) fn run(asked: Serve, stdout: &mut dyn Write) -> Result<Status, ServeError> {
    let content = match (asked.directory, asked.to) {
        (_, Some(uri)) => Content::Origin(uri),
        // The parser requires one of the two.
        (directory, None) => {
            Content::Directory { path: directory.unwrap_or_default(), listing: asked.listing }
        }
    };
    let tls = match (asked.cert, asked.key) {
        _ if asked.plaintext => Tls::Cleartext,
        (Some(chain), Some(key)) => Tls::Files { chain, key },
        _ => Tls::SelfSigned,
    };
    let options = Options {
        content,
        listen: asked.listen,
        tls,
        coupled: asked.coupled.into(),
        access_log: !asked.quiet,
    };
    marcato_serve::run(&options, &mut |text| output::print(stdout, text))?;
    Ok(Status::Ok)
}
