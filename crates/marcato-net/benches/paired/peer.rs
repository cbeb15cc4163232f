//! The two ends of a connection, seen from the measuring process.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::link::Place;
use crate::stack::Stack;
use crate::worker::{Failure, Purpose};

/// Limit of the time for an answer, except for an order to send for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Worker process, which ends on drop.
pub(crate) struct Peer {
    name: &'static str,
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// Progress of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Time in nanoseconds.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// Processor time in nanoseconds.
    pub(crate) cpu: u64,
}

impl Peer {
    fn spawn(name: &'static str, namespace: Option<&str>, arguments: &[&str]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg("worker").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("a worker without input")?;
        let output = BufReader::new(child.stdout.take().ok_or("a worker without output")?).lines();
        Ok(Self { name, _child: child, input, output })
    }

    async fn line(&mut self, patience: Duration) -> Result<String, Failure> {
        let silent = |_| format!("the {} says nothing for {patience:?}", self.name);
        let line = tokio::time::timeout(patience, self.output.next_line()).await.map_err(silent)??;
        let line = line.ok_or_else(|| format!("the {} has ended", self.name))?;
        match line.strip_prefix("failed ") {
            Some(why) => Err(format!("the {} failed: {why}", self.name).into()),
            None => Ok(line),
        }
    }

    /// Sends an order, and waits for the answer.
    pub(crate) async fn ask(&mut self, order: &str, patience: Duration) -> Result<String, Failure> {
        self.input.write_all(format!("{order}\n").as_bytes()).await?;
        self.input.flush().await?;
        self.line(PATIENCE + patience).await
    }

    pub(crate) async fn mark(&mut self) -> Result<Mark, Failure> {
        let line = self.ask("mark", Duration::ZERO).await?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [at, bytes, cpu] = numbers[..] else { return Err(format!("not a mark: {line}").into()) };
        Ok(Mark { at, bytes, cpu })
    }
}

/// Ends of one connection.
pub(crate) struct Pair {
    pub(crate) sender: Peer,
    pub(crate) receiver: Peer,
}

impl Pair {
    pub(crate) async fn connect(stack: Stack, place: &Place, purpose: Purpose) -> Result<Self, Failure> {
        let (from, to, mtu) = (place.sender(), place.receiver(), place.mtu().to_string());
        let mut receiver =
            Peer::spawn("receiver", to, &["receive", stack.name(), place.addr(), purpose.name(), &mtu])?;
        let line = receiver.line(PATIENCE).await?;
        let mut words = line.split(' ').skip(1);
        let addr = words.next().ok_or("the receiver does not say where it listens")?;
        let certificate = words.next().ok_or("the receiver shows no certificate")?;
        let mut sender = Peer::spawn("sender", from, &["send", stack.name(), addr, certificate, &mtu])?;
        sender.line(PATIENCE).await?;
        Ok(Self { sender, receiver })
    }
}
