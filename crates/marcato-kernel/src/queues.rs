//! Queues of a device, as iproute2's `tc` shows and changes them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use marcato_units::Bytes;

use crate::error::TcError;
use crate::shaper::TcCommand;

/// Queue of a device, with its counters.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Queue {
    /// Kind of discipline, such as `codel`.
    pub kind: String,
    /// Handle, such as `c410:`; `0:` for a queue that the system chose.
    pub handle: String,
    /// Class that the queue belongs to; `None` at the root.
    #[serde(default)]
    pub parent: Option<String>,
    /// Bytes that left.
    #[serde(default)]
    pub bytes: u64,
    /// Packets that left.
    #[serde(default)]
    pub packets: u64,
    /// Packets that the queue dropped.
    #[serde(default)]
    pub drops: u64,
    /// Packets that the queue marked.
    #[serde(default, rename = "ecn_mark")]
    pub marks: u64,
    /// Bytes that wait.
    #[serde(default, deserialize_with = "bytes")]
    pub backlog: Bytes,
    /// Packets that wait.
    #[serde(default)]
    pub qlen: u64,
    /// Options, by the names of `tc`.
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    serde::Deserialize::deserialize(from).map(Bytes::new)
}

impl Queue {
    /// Returns the queues of a device, the root first.
    ///
    /// # Errors
    /// [`TcError`] if `tc` cannot be run or understood.
    pub fn all(device: &str) -> Result<Vec<Self>, TcError> {
        let command = TcCommand(["-s", "-j", "qdisc", "show", "dev", device].map(str::to_owned).to_vec());
        let json = command.run()?;
        Self::from_json(&json).ok_or_else(|| TcError::Unreadable { command: command.to_string() })
    }

    fn from_json(json: &str) -> Option<Vec<Self>> {
        let mut queues: Vec<Self> = serde_json::from_str(json).ok()?;
        queues.sort_by_key(|queue| queue.parent.is_some());
        Some(queues)
    }

    /// Number in the handle.
    pub(crate) fn major(&self) -> Option<u16> {
        u16::from_str_radix(self.handle.strip_suffix(':')?, 16).ok()
    }

    /// Returns whether the system chose this queue, and nobody set it up.
    pub fn is_default(&self) -> bool {
        self.handle == "0:"
    }
}

impl TcCommand {
    /// Runs the command in the caller's network namespace, and returns its output.
    ///
    /// # Errors
    /// [`TcError`] if it fails.
    pub fn run(&self) -> Result<String, TcError> {
        let said = Command::new("tc").args(&self.0).output().map_err(TcError::NoTc)?;
        if said.status.success() {
            return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
        }
        Err(self.refused(&String::from_utf8_lossy(&said.stderr)))
    }

    /// Runs many commands by one process of `tc`, in the caller's network namespace, up to the first that fails.
    ///
    /// # Errors
    /// [`TcError`] for that command.
    pub fn run_all(commands: &[Self]) -> Result<(), TcError> {
        Self::run_by(&["-batch", "-"], commands)
    }

    /// Runs many commands by one process of `tc`, also those after one that fails.
    ///
    /// # Errors
    /// [`TcError`] for the first that fails.
    pub fn run_each(commands: &[Self]) -> Result<(), TcError> {
        Self::run_by(&["-force", "-batch", "-"], commands)
    }

    fn run_by(options: &[&str], commands: &[Self]) -> Result<(), TcError> {
        let Some(first) = commands.first() else { return Ok(()) };
        let mut tc = Command::new("tc")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(TcError::NoTc)?;
        let lines: String = commands.iter().map(|command| format!("{}\n", command.0.join(" "))).collect();
        let input = tc.stdin.take();
        // tc may say more than a pipe holds before it has read all. One that has failed reads no more.
        let said = thread::scope(|scope| {
            scope.spawn(|| input.map(|mut input| input.write_all(lines.as_bytes())));
            tc.wait_with_output()
        });
        let said = said.map_err(TcError::NoTc)?;
        if said.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        // It ends with the number of the line: `Command failed -:7`.
        let number = text
            .lines()
            .find_map(|line| line.strip_prefix("Command failed -:")?.trim().parse::<usize>().ok());
        let command = number.and_then(|number| commands.get(number.checked_sub(1)?)).unwrap_or(first);
        let words: Vec<&str> = text.lines().filter(|line| !line.starts_with("Command failed")).collect();
        Err(command.refused(&words.join(" ")))
    }

    /// Error for what `tc` says.
    fn refused(&self, said: &str) -> TcError {
        let command = self.to_string();
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if has(&["qdisc kind is unknown", "Specified qdisc not found", "Unknown qdisc"]) {
            TcError::Kind { command }
        } else if has(&["Operation not permitted"]) {
            TcError::Privilege { command }
        } else {
            TcError::Refused { command, why: said.split_whitespace().collect::<Vec<_>>().join(" ") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_from_the_output_of_tc() {
        let json = r#"[
            {"kind":"codel","handle":"c410:","parent":"c4:10","options":{"limit":416,"target":4999},"bytes":1514,
             "packets":1,"drops":3,"overlimits":0,"requeues":0,"backlog":3028,"qlen":2,"count":0,"ecn_mark":4},
            {"kind":"htb","handle":"c4:","root":true,"refcnt":3,"options":{},"bytes":1514,"packets":1,"drops":3}]"#;
        let queues = Queue::from_json(json).unwrap();
        assert_eq!((queues[0].kind.as_str(), queues[0].parent.as_deref()), ("htb", None));
        let leaf = Queue {
            kind: "codel".to_owned(),
            handle: "c410:".to_owned(),
            parent: Some("c4:10".to_owned()),
            bytes: 1514,
            packets: 1,
            drops: 3,
            marks: 4,
            backlog: Bytes::new(3028),
            qlen: 2,
            options: [("limit".to_owned(), 416.into()), ("target".to_owned(), 4999.into())]
                .into_iter()
                .collect(),
        };
        assert_eq!(queues[1], leaf);
        assert!(!leaf.is_default());
        let system = Queue::from_json(r#"[{"kind":"noqueue","handle":"0:","root":true}]"#).unwrap();
        assert!(system[0].is_default());
        for wrong in ["", "{}", r#"[{"kind":"htb"}]"#] {
            assert_eq!(Queue::from_json(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn refusals_say_how_to_mend_them() {
        let command = TcCommand(vec!["qdisc".to_owned(), "add".to_owned()]);
        for (said, expected) in [
            ("Error: Specified qdisc kind is unknown.", "load its module"),
            ("RTNETLINK answers: Operation not permitted", "CAP_NET_ADMIN"),
            ("Error: Invalid\nhandle.", "`tc qdisc add` fails: Error: Invalid handle."),
        ] {
            let error = command.refused(said).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
