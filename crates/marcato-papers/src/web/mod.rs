//! The web plane: late stylesheets over HTTP/2 in a lab, beside other servers in the same run.
//!
//! There is no such experiment in virtual time: what is measured is a real server over the kernel's TCP.

mod client;
mod late;
mod link;
mod server;

use marcato_report::{Config, Report, World};

use crate::{Experiment, Progress, RunError, RunOptions};

/// The experiments of the web plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Web;

impl Experiment for Web {
    fn name(&self) -> &'static str {
        "web"
    }

    fn about(&self) -> &'static str {
        "the web plane: a stylesheet that is asked for late, beside other servers"
    }

    fn worlds(&self) -> &'static [World] {
        &[World::Lab]
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        let answer = late::late(options, progress).map_err(|error| RunError::failed("web", error))?;
        let config = Config::new().set("loads", late::loads(options.quick));
        Ok(crate::answer::report(self, config, options, [answer]))
    }
}
