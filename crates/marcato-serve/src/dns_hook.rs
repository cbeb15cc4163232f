//! Program that sets and removes records of DNS, for checks of names by DNS-01 (RFC 8555 §8.4).

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Longest time for the program: records of some providers take minutes until everyone sees them.
const PATIENCE: Duration = Duration::from_secs(300);
/// Most bytes of its complaint that are printed.
const LONGEST: usize = 500;

/// Records of one order, which the program removes at its end.
pub(crate) struct Records<'h> {
    /// Program and its first arguments.
    hook: &'h [String],
    set: Vec<(String, String)>,
}

impl<'h> Records<'h> {
    pub(crate) const fn new(hook: &'h [String]) -> Self {
        Self { hook, set: Vec::new() }
    }

    /// Sets a record of the type TXT for a name that is checked, beside others of the same name. It is there once
    /// the program has ended.
    ///
    /// # Errors
    /// The reason for which the program failed.
    pub(crate) async fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let name = format!("_acme-challenge.{}", name.trim_start_matches("*."));
        // It is removed also if the program fails half-way.
        self.set.push((name.clone(), value.clone()));
        run(self.hook, "set", &name, &value).await
    }

    /// Removes all records. Returns the failures.
    pub(crate) async fn remove(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, value) in std::mem::take(&mut self.set) {
            failures.extend(run(self.hook, "remove", &name, &value).await.err());
        }
        failures
    }
}

/// Runs the program: `PROGRAM … set|remove NAME VALUE`. It is killed if nobody waits for it any more.
async fn run(hook: &[String], what: &str, name: &str, value: &str) -> Result<(), String> {
    let Some((program, arguments)) = hook.split_first() else { return Err("there is no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(arguments).args([what, name, value]).stdin(Stdio::null()).stdout(Stdio::null());
    let output = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).stderr(Stdio::piped()).output());
    let failed = |reason: String| format!("`{program} {what} {name}` failed: {reason}");
    let output = match output.await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed(format!("it took longer than {} s", PATIENCE.as_secs()))),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = output.stderr.get(..LONGEST).unwrap_or(&output.stderr);
    Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(said).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Program that appends its arguments to a file, and fails for a name.
    fn hook(file: &std::path::Path) -> Vec<String> {
        let script = "echo \"$@\" >> \"$0\"; case $2 in *bad*) echo no such zone >&2; exit 3;; esac";
        ["sh", "-c", script, file.to_str().unwrap()].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn records_are_set_and_removed_also_after_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("said");
        let hook = hook(&file);
        let mut records = Records::new(&hook);
        records.set("a.test", "one".to_owned()).await.unwrap();
        records.set("*.a.test", "two".to_owned()).await.unwrap();
        let error = records.set("bad.test", "three".to_owned()).await.unwrap_err();
        assert!(
            error.starts_with("`sh set _acme-challenge.bad.test` failed: exit status: 3: no such zone"),
            "{error}"
        );
        let failures = records.remove().await;
        assert!(
            failures.len() == 1 && failures[0].starts_with("`sh remove _acme-challenge.bad.test`"),
            "{failures:?}"
        );
        assert!(records.remove().await.is_empty());
        let said = std::fs::read_to_string(file).unwrap();
        let expected = "set _acme-challenge.a.test one\nset _acme-challenge.a.test two\nset _acme-challenge.bad.test three\n\
                        remove _acme-challenge.a.test one\nremove _acme-challenge.a.test two\nremove _acme-challenge.bad.test three\n";
        assert_eq!(said, expected);
        let absent = ["/nowhere/hook".to_owned()];
        assert!(
            Records::new(&absent).set("a.test", String::new()).await.unwrap_err().contains("No such file")
        );
    }
}
