//! The web plane over HTTP/2 and HTTP/3 beside other servers in the same run: late stylesheets, signals, page loads of a
//! browser, and cost.
//!
//! There is no such experiment in virtual time: what is measured is a real server over the kernel's TCP.

mod browser;
mod client;
mod cost;
mod demo;
mod generator;
mod instructions;
mod late;
mod late_http3;
mod link;
mod loads;
mod page;
mod process;
mod server;
mod signals;
mod site;
mod weights;

use std::time::Duration;

use marcato_report::{Config, Report, World};

pub use demo::{Emulation, OpenPages, PageLoad, WebDemo, WebDemoError, WebLoads};

use crate::{Experiment, Progress, RunError, RunOptions};

/// The experiments of the web plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Web;

impl Experiment for Web {
    fn name(&self) -> &'static str {
        "web"
    }

    fn about(&self) -> &'static str {
        "the web server beside other web servers: late stylesheets, page loads of a browser, and CPU time"
    }

    fn worlds(&self) -> &'static [World] {
        &[World::Lab]
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        let failed = |error| RunError::failed("web", error);
        let answers = [
            late::late(options, progress).map_err(failed)?,
            late_http3::late(options, progress).map_err(failed)?,
            signals::signals(options, progress).map_err(failed)?,
            loads::loads_of_browser(options, progress).map_err(failed)?,
            cost::cost(options, progress).map_err(failed)?,
        ];
        let config = Config::new().set("loads", late::loads(options.quick));
        Ok(crate::answer::report((self.name(), self.about()), config, options, answers))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get((values.len().max(1) - 1) / 2), values.get(values.len() / 2));
    low.zip(high).map_or(f64::NAN, |(low, high)| f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert!(median([]).is_nan());
    }
}
