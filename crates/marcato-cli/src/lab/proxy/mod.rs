//! `marcato lab proxy`: links and faults for connections, without privileges.

mod api;
mod document;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use marcato_lab::proxy::{Protocol, Proxies, ProxyConfig, ProxyView};
use marcato_units::Seed;
use serde_json::Value;
use tokio::net::TcpListener;

use self::document::Given;
use super::{LabError, shape};
use crate::Status;
use crate::arguments::LabProxy;
use crate::interrupt::Interrupt;
use crate::output;
use crate::table::Table;

/// Interval at which an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Works until it is interrupted.
pub(super) fn run(asked: &LabProxy, stdout: &mut dyn Write) -> Result<Status, LabError> {
    let configs = configs(asked)?;
    if configs.is_empty() && asked.api.is_none() {
        return Err(LabError::NoProxy);
    }
    let interrupt = Interrupt::listen().map_err(LabError::Interrupt)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(LabError::Runtime)?;
    let proxies = Arc::new(Proxies::new(Seed::new(asked.seed.unwrap_or(1))));
    let said = runtime.block_on(begin(&proxies, configs, asked.api.as_deref()))?;
    output::print(stdout, &said).map_err(LabError::Print)?;
    stdout.flush().map_err(LabError::Print)?;
    let views = runtime.block_on(async {
        while !interrupt.came() {
            tokio::time::sleep(LOOK).await;
        }
        proxies.all().await
    });
    if !asked.quiet {
        eprint!("{}", table(&views));
    }
    // Whoever is connected learns of the end by it.
    runtime.shutdown_background();
    Ok(Status::Ok)
}

/// Starts the proxies and the API. Returns a line for each.
async fn begin(
    proxies: &Arc<Proxies>,
    configs: Vec<ProxyConfig>,
    api: Option<&str>,
) -> Result<String, LabError> {
    let mut said = String::new();
    for config in configs {
        let view = proxies.create(config).await?;
        let ProxyConfig { name, listen, target, .. } = &view.config;
        said += &format!("{name} {} {listen} -> {target}\n", document::protocol(view.config.protocol));
    }
    if let Some(addr) = api {
        let failed = |source| LabError::Api { addr: addr.to_owned(), source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        said += &format!("api http://{}\n", listener.local_addr().map_err(failed)?);
        tokio::spawn(api::serve(listener, Arc::clone(proxies)));
    }
    Ok(said)
}

/// Returns the proxies of the command line and of the file.
fn configs(asked: &LabProxy) -> Result<Vec<ProxyConfig>, LabError> {
    let mut configs = match &asked.file {
        Some(file) => of_file(file)?,
        None => Vec::new(),
    };
    if let (Some(listen), Some(target)) = (&asked.listen, &asked.to) {
        let mut config = ProxyConfig {
            name: "proxy".to_owned(),
            protocol: if asked.udp { Protocol::Udp } else { Protocol::Tcp },
            listen: listen.clone(),
            target: target.clone(),
            enabled: true,
            ..ProxyConfig::default()
        };
        if let Some(brief) = shape::only(&asked.shape)? {
            document::set_link(&mut config, &brief).map_err(LabError::Links)?;
        }
        configs.push(config);
    }
    Ok(configs)
}

/// Reads a file of proxies: a list in JSON, as toxiproxy has it, or tables `[[proxy]]` in TOML.
fn of_file(path: &Path) -> Result<Vec<ProxyConfig>, LabError> {
    let failed = |problem: String| LabError::ProxyFile { file: path.display().to_string(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let list = match path.extension().is_some_and(|end| end == "toml") {
        true => {
            let mut document: Value = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
            let list = document.get_mut("proxy").map(Value::take);
            list.ok_or_else(|| failed("there is no proxy: write [[proxy]]".to_owned()))?
        }
        false => serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?,
    };
    let given: Vec<Given> = serde_json::from_value(list).map_err(|error| failed(error.to_string()))?;
    given.into_iter().map(|given| document::config(given).map_err(failed)).collect()
}

/// Returns a table of what each proxy carried.
fn table(views: &[ProxyView]) -> String {
    let mut table = Table::new([
        "proxy",
        "protocol",
        "accepted",
        "refused",
        "unreachable",
        "kB up",
        "kB down",
        "discarded",
    ]);
    for ProxyView { config, counters } in views {
        table.row([
            config.name.clone(),
            document::protocol(config.protocol).to_owned(),
            counters.accepted.to_string(),
            counters.refused.to_string(),
            counters.unreachable.to_string(),
            (counters.bytes_up / 1000).to_string(),
            (counters.bytes_down / 1000).to_string(),
            counters.discarded.to_string(),
        ]);
    }
    table.words(2).to_string()
}
