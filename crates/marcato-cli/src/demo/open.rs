//! `marcato demo --open`: the page of the web plane behind two emulated links, for a browser.

use std::io::Write;

use marcato_papers::WebDemo;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{BUFFER, DELAY, DemoError, RATE, Scheme, queue};
use crate::Status;
use crate::arguments::Demo;

/// Serves the page until an interrupt or a request to end.
pub(super) fn run(asked: &Demo, stdout: &mut dyn Write) -> Result<Status, DemoError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(DemoError::Interrupt)?;
    let demo = WebDemo {
        rate: RATE,
        delay: DELAY,
        queue: queue(asked),
        buffer: BUFFER,
        loss: 0.0,
        seed: asked.seed,
        loads: 0,
    };
    let pages = demo.open()?;
    let mut text =
        format!("One page of 330 kB, each time through a link of {RATE} and {DELAY:?} each way:\n\n");
    for (scheme, addr) in Scheme::BOTH.into_iter().zip(pages.addrs()) {
        let name = match scheme {
            Scheme::Fifo => "first come, first served",
            Scheme::Marcato => scheme.name(),
        };
        text += &format!("  {name:26}https://localhost:{}/\n", addr.port());
    }
    text += &format!(
        "\nThe certificate is of this run alone, so your browser warns of each link: accept it. Its SHA-256 is\n\
         {}\n\nReload a page to see it arrive again. Ctrl-C ends the demo.\n",
        pages.fingerprint()
    );
    crate::output::print(stdout, &text).map_err(DemoError::Print)?;
    stdout.flush().map_err(DemoError::Print)?;
    // It ends with the first signal.
    let _ = signals.forever().next();
    Ok(Status::Ok)
}
