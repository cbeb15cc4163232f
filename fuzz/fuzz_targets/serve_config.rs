//! No text makes the reader of `marcato serve --config` panic. Each error has a place in the text.
#![no_main]

use marcato_serve::config::{Config, Content};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse("fuzzed.toml", text) {
        Ok(config) => {
            assert!(!config.listen.is_empty() && !config.sites.is_empty());
            assert!(config.sites.iter().filter(|site| site.is_default).count() <= 1);
            for site in &config.sites {
                assert!(site.is_default || !site.hosts.is_empty());
                assert!(site.routes.is_sorted_by(|a, b| a.path.len() >= b.path.len()));
                for route in &site.routes {
                    let Content::Origin(name) = &route.content else { continue };
                    assert!(config.origins.iter().any(|origin| origin.name == *name));
                }
            }
            for origin in &config.origins {
                assert!(origin.proxy.validate().is_ok());
            }
        }
        Err(error) => {
            assert!(!error.faults().is_empty() && !error.to_string().is_empty());
            let lines = text.matches('\n').count() + 1;
            for fault in error.faults() {
                assert!(fault.line <= lines && fault.width >= 1);
            }
        }
    }
});
