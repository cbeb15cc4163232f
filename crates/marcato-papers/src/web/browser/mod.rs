//! Chromium, which loads pages and tells their times.

mod pipe;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use marcato_report::chart::Jpeg;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{NAME, is_installed};
use crate::error::SimulationError;
use crate::lab::failed;
use pipe::Pipe;

/// Names under which distributions install it.
pub(super) const PROGRAMS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// Shell command that gives a program descriptors 3 and 4 in the place of standard input and output:
/// there the browser expects its pipe.
const WITH_PIPE: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;
/// Options of the browser. It opens only pages of this program, and root has no sandbox.
const OPTIONS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--disable-sync",
    "--hide-scrollbars",
    "--ignore-certificate-errors",
    "--no-first-run",
    "--remote-debugging-pipe",
];
/// Width and height of the window, in pixels.
const WINDOW: (u32, u32) = (800, 600);
/// Time for an answer of the browser, and for a page.
const ANSWER: Duration = Duration::from_secs(30);
const LOAD: Duration = Duration::from_secs(60);
/// Time after the load in which the browser may still paint.
const SETTLE: Duration = Duration::from_millis(400);
/// Width of the images of a film strip, in pixels, and their quality in %.
const FILM_WIDTH: u32 = 200;
const FILM_QUALITY: u32 = 50;
/// Expression that tells how a page was loaded. Largest paints are told to observers only.
const REPORT: &str = "new Promise(done => {
    let largest = 0;
    const observer = new PerformanceObserver(list => {
        for (const entry of list.getEntries()) largest = entry.startTime;
    });
    observer.observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(() => {
        const [page] = performance.getEntriesByType('navigation');
        const [first] = performance.getEntriesByName('first-contentful-paint');
        const complete = [...document.images].every(image => image.naturalWidth > 0)
            && getComputedStyle(document.body).marginTop === '16px'
            && document.fonts.check('18px text');
        done({
            first: first ? first.startTime : 0, largest, load: page.loadEventEnd, complete,
            protocol: page.nextHopProtocol, origin: performance.timeOrigin,
        });
    }, 50);
})";

/// Times of a page's load, since its navigation began.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loaded {
    /// First contentful paint.
    pub(super) first: Duration,
    /// Largest contentful paint.
    pub(super) largest: Duration,
    /// End of the event `load`.
    pub(super) load: Duration,
    /// Images of the page as it was painted, if they were asked for.
    pub(super) film: Vec<(Duration, Jpeg)>,
}

/// Running browser. It ends when this is dropped.
pub(super) struct Browser {
    child: Child,
    pipe: Pipe,
    _profile: TempDir,
}

impl Browser {
    /// Name of the browser's program, if it is installed.
    pub(super) fn program() -> Option<&'static str> {
        PROGRAMS.into_iter().find(|program| is_installed(program))
    }

    /// Starts the browser by a function that spawns commands. It takes all names for the host of a server.
    pub(super) fn start(
        server: SocketAddr,
        spawn: impl FnOnce(Command) -> Result<Child, SimulationError>,
    ) -> Result<Self, SimulationError> {
        let program = Self::program().ok_or(SimulationError::Missing("browser"))?;
        let profile = tempfile::tempdir().map_err(failed)?;
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPE, "sh", program]).args(OPTIONS);
        command.arg(format!("--host-resolver-rules=MAP * {}", server.ip()));
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // It writes to places below the user's home, too.
        command.env("HOME", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = spawn(command)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).ok_or(SimulationError::Missing("pipe to the browser"))?;
        let mut browser = Self { child, pipe: Pipe::new(input, output), _profile: profile };
        browser.pipe.call(None, "Browser.getVersion", json!({}), ANSWER)?;
        Ok(browser)
    }

    /// Loads the page of a server at this port: with an empty cache, and on new connections.
    pub(super) fn load(&mut self, port: u16, film: bool) -> Result<Loaded, SimulationError> {
        let created = self.pipe.call(
            None,
            "Target.createBrowserContext",
            json!({ "disposeOnDetach": true }),
            ANSWER,
        )?;
        let context = text(&created, "browserContextId")?;
        let loaded = self.load_in(&context, port, film);
        let disposed = json!({ "browserContextId": context });
        self.pipe.call(None, "Target.disposeBrowserContext", disposed, ANSWER)?;
        loaded
    }

    fn load_in(&mut self, context: &str, port: u16, film: bool) -> Result<Loaded, SimulationError> {
        let pipe = &mut self.pipe;
        let blank = json!({ "url": "about:blank", "browserContextId": context });
        let target = text(&pipe.call(None, "Target.createTarget", blank, ANSWER)?, "targetId")?;
        let attach = json!({ "targetId": target, "flatten": true });
        let session = text(&pipe.call(None, "Target.attachToTarget", attach, ANSWER)?, "sessionId")?;
        let session = Some(session.as_str());
        pipe.call(session, "Page.enable", json!({}), ANSWER)?;
        let (width, height) = WINDOW;
        let window = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        pipe.call(session, "Emulation.setDeviceMetricsOverride", window, ANSWER)?;
        if film {
            let images = json!({ "format": "jpeg", "quality": FILM_QUALITY, "maxWidth": FILM_WIDTH });
            pipe.call(session, "Page.startScreencast", images, ANSWER)?;
        }
        pipe.forget();
        let url = format!("https://{NAME}:{port}/");
        let begun = pipe.call(session, "Page.navigate", json!({ "url": url }), ANSWER)?;
        if let Some(error) = begun.get("errorText") {
            return Err(SimulationError::Lab(format!("the browser did not load {url}: {error}")));
        }
        let (mut images, mut until, mut loaded) = (Vec::new(), Instant::now() + LOAD, false);
        while let Some(event) = pipe.event(until)? {
            match event.get("method").and_then(Value::as_str) {
                Some("Page.loadEventFired") if !loaded => {
                    (loaded, until) = (true, Instant::now() + SETTLE);
                }
                Some("Page.screencastFrame") => {
                    let frame = &event["params"];
                    let at = frame["metadata"]["timestamp"].as_f64();
                    let image = frame["data"].as_str().and_then(Jpeg::from_base64);
                    images.extend(at.zip(image));
                    let seen = json!({ "sessionId": frame["sessionId"] });
                    pipe.call(session, "Page.screencastFrameAck", seen, ANSWER)?;
                }
                _ => {}
            }
        }
        if !loaded {
            return Err(SimulationError::Incomplete(format!("the page of port {port}")));
        }
        let ask = json!({ "expression": REPORT, "awaitPromise": true, "returnByValue": true });
        let told = pipe.call(session, "Runtime.evaluate", ask, ANSWER)?;
        report(&told["result"]["value"], images)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends by itself when its pipe does; what it still has to say means nothing.
        let _ = self.pipe.call(None, "Browser.close", json!({}), Duration::from_secs(5));
        let _ = self.child.wait();
    }
}

fn text(answer: &Value, name: &'static str) -> Result<String, SimulationError> {
    let text = answer.get(name).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| SimulationError::Lab(format!("the browser tells no {name}: {answer}")))
}

/// Reads what a page reports. Images have seconds since the epoch.
fn report(told: &Value, images: Vec<(f64, Jpeg)>) -> Result<Loaded, SimulationError> {
    let problem = |problem: &str| SimulationError::Lab(format!("{problem}: {told}"));
    if told["protocol"] != "h2" {
        return Err(problem("the browser did not use HTTP/2"));
    }
    if told["complete"] != true {
        return Err(problem("the browser lacks parts of the page"));
    }
    let number = |name: &str| told[name].as_f64().filter(|number| *number > 0.0);
    let time = |name: &str| {
        let time = number(name).and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        time.ok_or_else(|| problem("the browser tells no times"))
    };
    let origin = number("origin").ok_or_else(|| problem("the browser tells no origin"))? / 1e3;
    let since = |at: f64| Duration::try_from_secs_f64(at - origin).unwrap_or_default();
    let film = images.into_iter().map(|(at, image)| (since(at), image)).collect();
    Ok(Loaded { first: time("first")?, largest: time("largest")?, load: time("load")?, film })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Value {
        json!({
            "first": 600.5, "largest": 800, "load": 1700, "complete": true, "protocol": "h2",
            "origin": 1_000_000.0,
        })
    }

    #[test]
    fn times_are_since_the_navigation() {
        let image = Jpeg::from_base64("/9j/").unwrap();
        let loaded = report(&told(), vec![(999.0, image.clone()), (1_000.25, image.clone())]).unwrap();
        assert_eq!(loaded.first, Duration::from_micros(600_500));
        assert_eq!(loaded.largest, Duration::from_millis(800));
        let film = [(Duration::ZERO, image.clone()), (Duration::from_millis(250), image)];
        assert_eq!(loaded.film, film);
    }

    #[test]
    fn broken_pages_and_those_of_another_protocol_are_refused() {
        for (key, value) in [("complete", json!(false)), ("protocol", json!("http/1.1")), ("first", json!(0))]
        {
            let mut told = told();
            told[key] = value;
            assert!(report(&told, vec![]).is_err(), "{key}");
        }
    }
}
