//! Configuration files: what they mean, and what is said about those with errors.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::time::Duration;

use marcato_document::schema::{Entry, Schema};
use marcato_serve::config::{CertificateSource, Compress, Config, Content, ListenAt, Watch, reference};
use marcato_units::Bytes;
use marcato_web::compression::Codec;
use proptest::prelude::*;

/// Problems of a text, each with its line and column.
fn problems(text: &str) -> Vec<String> {
    let error = Config::parse("serve.toml", text).unwrap_err();
    let shown =
        |fault: &marcato_document::Fault| format!("{}:{}: {}", fault.line, fault.column, fault.problem);
    error.faults().iter().map(shown).collect()
}

const SITE: &str = "[[listen]]\naddress = '[::]:443'\n[[site]]\ncertificate = 'self-signed'\n";

/// The only problem of a site with these lines, which begin at line 5.
fn of_site(lines: &str) -> String {
    let found = problems(&format!("{SITE}{lines}"));
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

#[test]
fn the_example_is_read_as_it_says() {
    let text = include_str!("../../../contrib/serve/serve.toml");
    let config = Config::parse("serve.toml", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.listen[0].at.value, ListenAt::Address("[::]:443".parse().unwrap()));
    assert_eq!((config.listen[1].plaintext, config.listen[1].redirect_to_https), (true, Some(443)));
    let mut limits = marcato_web::Limits::default();
    limits.request_rate = Some(marcato_web::RateLimit::new(50, 200));
    limits.connection_rate = Some(marcato_web::RateLimit::new(10, 50));
    limits.open_per_address = std::num::NonZeroU32::new(100);
    assert_eq!(config.limits, limits);
    let trusted: Vec<String> = config.trusted.iter().map(ToString::to_string).collect();
    assert_eq!(trusted, ["127.0.0.0/8", "::1/128"]);
    assert!(config.metrics.is_none() && config.watch.is_none());
    assert_eq!(config.compression, Compress::default());
    let app = config.origins.iter().find(|origin| origin.name == "app").unwrap();
    assert_eq!(app.proxy.upstreams.iter().map(|it| it.weight).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(app.proxy.response_timeout, Duration::from_secs(30));
    assert_eq!(app.proxy.health.as_ref().unwrap().path, "/health");
    let [files, wildcard, moved] = &config.sites[..] else { panic!("three sites") };
    assert_eq!(files.routes.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["/api", "/old", ""]);
    assert!(files.routes[0].strips_prefix && files.is_default);
    assert_eq!(files.routes.iter().map(|it| it.compress).collect::<Vec<_>>(), [Some(true), None, None]);
    assert_eq!(files.hsts.as_ref().unwrap(), "max-age=31536000; includeSubDomains");
    assert_eq!(wildcard.hosts[0].to_string(), "*.example.net");
    assert_eq!(wildcard.routes[0].content, Content::Origin("http://127.0.0.1:8080".to_owned()));
    assert_eq!(moved.certificate.value, CertificateSource::Acme);
    let Content::Redirect(redirect) = &moved.routes[0].content else { panic!("a redirect") };
    assert_eq!((redirect.status.as_u16(), redirect.keep_path), (308, true));
}

const MANUAL: &str = include_str!("../../../docs/serve.md");

#[test]
fn the_example_of_the_manual_is_read() {
    let example = MANUAL.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::parse("serve.toml", example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.listen.len(), config.sites[0].routes.len()), (2, 2));
    // That of access needs a site, and the one of compression a listener.
    let example = MANUAL.split("```toml\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::parse("serve.toml", &format!("{SITE}directory = 'a'\n{example}"))
        .unwrap_or_else(|error| panic!("{error}"));
    let access = config.sites[0].routes[0].handling.access.as_ref().unwrap();
    assert_eq!((access.allow.len(), bcrypt::verify("secret", &access.users[0].hash).unwrap()), (2, true));
    let example = MANUAL.split("```toml\n").nth(3).and_then(|rest| rest.split("```").next()).unwrap();
    let text = format!("{example}\n[[listen]]\naddress = '[::]:80'\nplaintext = true\n");
    let config = Config::parse("serve.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.sites[0].routes[0].compress, Some(false));
    assert!(config.compression.origins && config.compression.how.types.len() == 4);
}

#[test]
fn the_manual_has_the_keys_as_they_are_declared() {
    let rows = |section: &str| -> Vec<String> {
        section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
    };
    let sections = MANUAL.split("\n## ").flat_map(|chapter| chapter.split("\n### Keys of ").skip(1));
    let found: Vec<(&str, Vec<String>)> =
        sections.map(|section| (section.lines().next().unwrap(), rows(section))).collect();
    // Keys that a table shares with others have a section of their own.
    let own = |schema: &Schema| schema.entries[0].iter().flat_map(Entry::rows).collect();
    let declared: Vec<(&str, Vec<String>)> = reference().map(|schema| (schema.what, own(&schema))).collect();
    let needed: Vec<String> = declared
        .iter()
        .filter(|section| !found.contains(section))
        .map(|(what, rows)| format!("### Keys of {what}\n\n{HEAD}\n{}\n", rows.join("\n")))
        .collect();
    assert!(needed.is_empty(), "sections that docs/serve.md needs:\n{}", needed.join("\n"));
    assert_eq!(found, declared, "docs/serve.md has other sections than there are tables");
}

const HEAD: &str = "| key | meaning | default |\n|---|---|---|";

#[test]
fn compression_is_read_as_a_word_or_a_table() {
    let read = |lines: &str| Config::parse("serve.toml", &format!("{lines}\n{SITE}directory = 'a'")).unwrap();
    let default = Compress::default();
    assert!(default.directories && !default.origins);
    assert_eq!(read("").compression, default);
    for is_on in [true, false] {
        let expected = Compress { directories: is_on, origins: is_on, ..default.clone() };
        assert_eq!(read(&format!("compression = {is_on}")).compression, expected);
    }
    let table = "[compression]\ndirectories = false\norigins = true\ncodings = ['gzip', 'zstd']\ngzip-level = 9\n\
                 br-level = 6\ntypes = 'text/*'\nmin-size = '2 KiB'\nmemory = '1 MiB'";
    let mut expected = Compress { directories: false, origins: true, ..default };
    expected.how.codecs = vec![Codec::Gzip(9), Codec::ZSTD];
    expected.how.types = vec!["text/*".to_owned()];
    expected.how.min_size = Bytes::new(2 << 10);
    expected.how.memory = Bytes::new(1 << 20);
    assert_eq!(read(table).compression, expected);
    let levels = read("[compression]\nzstd-level = 1\nbr-level = 0").compression.how.codecs;
    assert_eq!(levels, [Codec::Zstd(1), Codec::Brotli(0), Codec::GZIP]);
    let routes = "compress = false\n[[site.route]]\npath = '/a'\ndirectory = 'a'\ncompress = true\n\
                  [[site.route]]\npath = '/b/c'\ndirectory = 'a'";
    let config = Config::parse("serve.toml", &format!("{SITE}directory = 'a'\n{routes}")).unwrap();
    let routes = config.sites[0].routes.iter().map(|route| (route.path.as_str(), route.compress));
    assert_eq!(routes.collect::<Vec<_>>(), [("/b/c", Some(false)), ("/a", Some(true)), ("", Some(false))]);
}

#[test]
fn faults_of_compression_say_what_to_write() {
    let text = format!(
        "[compression]\ncodings = ['gzip', 'brotli', 'gzip']\nzstd-level = 12\ngzip-level = 0\ntypes = ['text/html', 'html']\nsize = 1\n{SITE}directory = 'a'\ncompress = 'yes'"
    );
    let found = problems(&text);
    for expected in [
        "2:20: \"brotli\" is no coding: ",
        "2:30: the coding `gzip` is given twice: remove one",
        "4:14: `gzip-level` is 1 to 9, not 0",
        "5:23: \"html\" is no content type: write \"text/html\", \"text/*\" or \"application/*+json\"",
        "6:1: `size` is not a key of [compression]: ",
        "`compress` is true or false",
    ] {
        assert!(found.iter().any(|problem| problem.contains(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(problems(&format!("compression = 1\n{SITE}directory = 'a'")).len(), 1);
    assert_eq!(problems(&format!("[compression]\ncodings = []\n{SITE}directory = 'a'")).len(), 1);
}

#[test]
fn all_errors_of_a_file_come_at_once() {
    let text = "\
coupled = \"sometimes\"
[[listen]]
address = \":443\"
[[listen]]
adress = \"[::]:80\"
[limits]
idle = 75
connections = 0
[[origin]]
name = \"app\"
to = [\"127.0.0.1:3000\"]
retrys = 3
[[site]]
hosts = [\"https://example.org\", \"a.*.org\"]
certificate = \"acme\"
directory = \"/srv\"
origin = \"ap\"
hsts = 1
headers = { Date = \"now\", \"a b\" = \"c\" }
[[site.route]]
path = \"api\"
redirect = { to = \"nowhere\", status = 303 }
[[site]]
default = \"yes\"
[guess]
large = \"soon\"
extensions = { \".png\" = \"u=1\" }
[acme]
terms-agreed = false
";
    let expected = [
        "1:11: `coupled` is \"sometimes\": there are `auto`, `on`, `off`",
        "3:11: \":443\" is no address with a port: write \"[::]:443\" for all addresses",
        "4:1: a listener needs `address`: give one, as \"[::]:443\", or the `socket` of a supervisor",
        "5:1: `adress` is not a key of a listener: did you mean `address`?",
        "7:8: `idle` is a span of time and needs a unit: write \"75 s\", not 75",
        "8:15: `connections` is 1 to 1000000, not 0",
        "11:7: upstream \"127.0.0.1:3000\": unknown scheme: begin with http://, h2c:// or https://",
        "12:1: `retrys` is not a key of an origin: did you mean `retries`?",
        "14:10: \"https://example.org\" is more than a name: write the name alone, as \"example.org\"",
        "14:33: \"a.*.org\" has an asterisk within: write \"*.\" in front of a name, as \"*.example.org\"",
        "17:10: `origin` stands beside `directory`: remove one, or make it a route",
        "18:8: `hsts` is true, false or a table, not a number",
        "19:13: `date` is written by the server itself: remove it",
        "19:27: `a b` is no name of a header field",
        "21:8: \"api\" is no path of a route: begin with a slash, and write neither a query nor empty or dot segments",
        "22:19: \"nowhere\" is no target: give a path, as \"/new\", or a URL, as \"https://example.org\"",
        "22:39: `status` is 303: use 308 or 301 for good, 307 or 302 for now",
        "23:1: the site has no content: add a `directory`, an `origin`, a `redirect` or a [[site.route]]",
        "24:11: `default` is true or false, not a string",
        "26:9: `large` is \"soon\": write it as \"u=2\" or \"u=2, i\" with an urgency of 0 to 7, or \"\" to remove it",
        "27:25: `.png` is no extension: write it in lower case without a dot, as \"png\"",
        "28:1: [acme] needs `state`: name a directory for the account's key and the certificates",
        "29:16: no certificate is issued without the terms: write true if you agree, or remove [acme]",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn metrics_and_the_page_are_off_unless_given() {
    let read =
        |lines: &str| Config::parse("serve.toml", &format!("{lines}\n{SITE}directory = '/srv'")).unwrap();
    assert_eq!(read("watch = false").watch, None);
    assert_eq!(read("watch = true").watch, Some(Watch::default()));
    let watch = read("watch = { connections = 5, allow = '10.0.0.0/8' }").watch.unwrap();
    assert_eq!((watch.connections, watch.allow[0].to_string()), (5, "10.0.0.0/8".to_owned()));
    let metrics = read("metrics = '127.0.0.1:9187'").metrics.unwrap();
    assert_eq!(metrics.value, "127.0.0.1:9187".parse().unwrap());
}

#[test]
fn errors_of_rates_and_of_what_operators_see_name_the_remedy() {
    for (lines, problem) in [
        (
            "metrics = ':9187'",
            "1:11: \":9187\" is no address with a port: write \"[::]:9187\" for all addresses",
        ),
        ("watch = 'yes'", "1:9: `watch` is true, false or a table, not a string"),
        (
            "watch = { conections = 5 }",
            "1:11: `conections` is not a key of [watch]: did you mean `connections`?",
        ),
        (
            "watch = { allow = ['everyone'] }",
            "1:20: \"everyone\" is no network: write \"192.0.2.0/24\" or \"2001:db8::/32\"",
        ),
        ("rates = { requests = 50 }", "1:22: `requests` is a table: write { per-second = 50, burst = 100 }"),
        (
            "rates = { requests = { per-second = 50 } }",
            "1:22: a rate needs `burst`: give what may pass at once, as 100",
        ),
        ("rates = { open = 0 }", "1:18: `open` is 1 to 1000000, not 0"),
        (
            "rates = { trusted = ['10.0.0.0/33'] }",
            "1:22: \"10.0.0.0/33\" is no network: write \"192.0.2.0/24\" or \"2001:db8::/32\"",
        ),
    ] {
        assert_eq!(problems(&format!("{lines}\n{SITE}directory = '/srv'")), [problem]);
    }
}

#[test]
fn errors_show_the_line_and_underline_the_place() {
    let error =
        Config::parse("serve.toml", &format!("{SITE}directory = '/srv'\nhots = 'a.example'\n")).unwrap_err();
    let shown = error.to_string();
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        [
            "serve.toml:6:1: `hots` is not a key of a site: did you mean `hosts`?",
            "   6 | hots = 'a.example'",
            "     | ^^^^",
        ]
    );
}

#[test]
fn errors_of_sites_name_the_remedy() {
    for (lines, problem) in [
        (
            "",
            "3:1: the site has no content: add a `directory`, an `origin`, a `redirect` or a [[site.route]]",
        ),
        ("origin = 'app'", "5:10: there is no origin `app`: give its URL, or add [[origin]]"),
        (
            "directory = '/srv'\nfiles = { listing = 'true' }",
            "6:21: `listing` is true or false: write true, without quotes",
        ),
        ("directory = ''", "5:13: `directory` is empty: give it a value, or remove it"),
        ("redirect = '/new'\nfiles = {}", "6:9: `files` needs a `directory`: add it, or remove `files`"),
        ("directory = '/srv'\nhosts = ['a.test', 'A.test']", "6:20: `a.test` is given twice: remove one"),
        (
            "directory = '/srv'\n[[site]]\ndirectory = '/'\ndefault = true\ncertificate = 'self-signed'",
            "3:1: the site has no name: add `hosts`, or `default = true`",
        ),
        (
            "directory = '/srv'\ncoupled = 'on'",
            "6:1: `coupled` is not a key of a site but of the whole file: put it above the first [table]",
        ),
        (
            "directory = '/srv'\n[[site.route]]\npath = '/a'",
            "6:1: the route has no content: add a `directory`, an `origin` or a `redirect`",
        ),
        (
            "directory = '/srv'\n[site.route]\npath = '/a'\nredirect = '/b'",
            "6:1: `route` is a list of tables, not one alone: write [[route]], in double brackets",
        ),
        (
            "directory = '/srv'\nhsts = { preload = true }",
            "6:20: browsers do not preload this: add `include-subdomains = true`, and a `max-age` of at least \"8760 h\"",
        ),
        ("directory = '/srv'\nheaders = { a = 'b\u{7}' }", "6:19: this is not TOML"),
    ] {
        let found = of_site(lines);
        assert!(found.starts_with(problem), "{lines}\nexpected: {problem}\nfound:    {found}");
    }
}

#[test]
fn bounds_of_an_origin_are_read_and_checked() {
    let origin = |lines: &str| {
        format!(
            "[limits]\nfields = 200\n[[origin]]\nname = 'app'\nto = 'http://a.test'\n{lines}\n{SITE}origin = 'app'"
        )
    };
    let proxy = |lines: &str| Config::parse("serve.toml", &origin(lines)).unwrap();
    let config = proxy("");
    assert_eq!(config.limits.fields, 200);
    let of = &config.origins[0].proxy;
    let found = (of.via_to_origins, of.response_fields, of.response_head.get(), of.kept_body.get());
    assert_eq!(found, (false, 500, 64 << 10, 64 << 10));
    let keys = [
        "via-to-origins = true",
        "response-fields = 7",
        "response-head = '1 KiB'",
        "kept-body = '0 B'",
        "idle-timeout = '7 s'",
        "max-idle = 7",
    ];
    let config = proxy(&keys.join("\n"));
    let of = &config.origins[0].proxy;
    let found = (of.via_to_origins, of.response_fields, of.response_head.get(), of.kept_body.get());
    assert_eq!(found, (true, 7, 1 << 10, 0));
    assert_eq!((of.idle_timeout, of.max_idle), (Duration::from_secs(7), 7));
    // An origin of which one key has changed is another one.
    for key in keys {
        assert!(proxy("").origins[0] != proxy(key).origins[0], "{key}");
    }
    for (line, problem) in [
        ("response-fields = 0", "6:19: `response-fields` is 1 to 10000, not 0"),
        ("response-head = '1 B'", "6:17: `response-head` is 1 KiB to 1 MiB, not 1 B"),
        ("kept-body = '17 MiB'", "6:13: `kept-body` is 0 B to 16 MiB, not 17 MiB"),
    ] {
        assert_eq!(problems(&origin(line)), [problem]);
    }
}

#[test]
fn sites_without_certificate_need_listeners_without_tls() {
    let site = "[[site]]\ndirectory = '/srv'\n";
    let tls = problems(&format!("[[listen]]\naddress = '[::]:443'\n{site}"));
    assert!(
        tls[0].starts_with("3:1: the site has no certificate for the listeners with TLS: add"),
        "{tls:?}"
    );
    Config::parse("serve.toml", &format!("[[listen]]\naddress = '[::]:80'\nplaintext = true\n{site}"))
        .unwrap();
}

#[test]
fn sites_for_acme_need_names_without_asterisk_and_an_account() {
    let site = |hosts: &str| {
        problems(&format!(
            "[[listen]]\naddress = '[::]:443'\n[[site]]\n{hosts}\ncertificate = 'acme'\ndirectory = '/srv'\n"
        ))
    };
    assert_eq!(
        site("hosts = '*.a.test'"),
        [
            "4:9: ACME by TLS-ALPN-01 issues nothing for `*.a.test`: list its names, or give files",
            "5:15: `certificate` is \"acme\", but there is no [acme]: add it",
        ]
    );
    assert!(site("default = true")[1].ends_with("a certificate by ACME needs a name: add `hosts`"));
}

#[test]
fn a_file_without_listener_and_site_says_both() {
    let found = problems("");
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("no listener is given") && found[1].contains("no site is given"), "{found:?}");
}

#[test]
fn every_table_has_a_bound() {
    let names: Vec<String> = (0..1001).map(|number| format!("'h{number}.test'")).collect();
    let found = of_site(&format!("directory = '/srv'\ndefault = true\nhosts = [{}]", names.join(", ")));
    assert!(found.ends_with("`hosts` has 1001 entries: give at most 1000"), "{found}");
    let keys: String = (0..200).map(|number| format!("k{number} = 1\n")).collect();
    let error = Config::parse("serve.toml", &format!("{SITE}directory = '/srv'\n{keys}")).unwrap_err();
    assert_eq!(error.faults().len(), 50);
    assert!(error.to_string().ends_with("and 150 more"), "{error}");
    let long = Config::parse("serve.toml", &" ".repeat((1 << 20) + 1)).unwrap_err();
    assert!(long.to_string().contains("is larger than 1048576 bytes"), "{long}");
}

proptest! {
    /// Texts near the example: parts are lost, repeated or in another place.
    #[test]
    fn no_text_panics_and_every_error_has_a_place(
        cuts in proptest::collection::vec((0usize..4000, 0usize..60, 0usize..4000), 1..6),
    ) {
        let mut text = include_str!("../../../contrib/serve/serve.toml").to_owned();
        for (from, len, to) in cuts {
            let from = from.min(text.len());
            let part: String = text.drain(from..(from + len).min(text.len())).collect();
            text.insert_str(to.min(text.len()), &part);
        }
        if let Err(error) = Config::parse("serve.toml", &text) {
            let lines = text.matches('\n').count() + 1;
            prop_assert!(!error.faults().is_empty() && !error.to_string().is_empty());
            prop_assert!(error.faults().iter().all(|fault| (1..=lines).contains(&fault.line)), "{}", error);
        }
    }
}

#[test]
fn origins_differ_by_each_of_their_keys() {
    let origin = |line: &str| {
        let to = if line.starts_with("to = ") { "" } else { "to = 'http://127.0.0.1:1'\n" };
        let text = format!("{SITE}origin = 'o'\n[[origin]]\nname = 'o'\n{to}{line}\n");
        Config::parse("serve.toml", &text).unwrap_or_else(|error| panic!("{error}")).origins.remove(0)
    };
    // A reload keeps the connections of an equal origin, and so its values.
    assert_eq!(origin(""), origin(""));
    for line in [
        "to = 'http://127.0.0.1:2'",
        "to = [{ url = 'http://127.0.0.1:1', weight = 2 }]",
        "connect-timeout = '1 s'",
        "response-timeout = '1 s'",
        "body-idle-timeout = '1 s'",
        "tunnel-idle-timeout = '1 s'",
        "retries = 1",
        "health = {}",
        "health = { path = '/health' }",
        "passive = { failures = 9 }",
        "max-in-flight = 1",
        "max-idle = 1",
        "idle-timeout = '1 s'",
        "preserve-host = false",
        "trusted-forwarders = 'all'",
        "via = 'b'",
        "via-to-origins = true",
        "response-head = '1 KiB'",
        "response-fields = 1",
        "kept-body = '1 B'",
        "ca = 'ca.pem'",
    ] {
        assert_ne!(origin(line), origin(""), "{line}");
        assert_eq!(origin(line), origin(line), "{line}");
    }
}

#[test]
fn one_site_answers_for_all_hosts() {
    let site = "directory = '/srv'\ndefault = true";
    let problem = of_site(&format!("{site}\n[[site]]\ncertificate = 'self-signed'\n{site}\n"));
    assert_eq!(problem, "10:11: there are two default sites: remove `default` from one");
}

#[test]
fn faults_of_handling_name_the_place() {
    let route = |lines: &str| {
        let found = problems(&format!("{SITE}directory = 'a'\n[[site.route]]\npath = '/x'\n{lines}"));
        assert_eq!(found.len(), 1, "{lines}: {found:#?}");
        found[0].clone()
    };
    for (lines, expected) in [
        ("directory = 'a'\ntry-files = ['index.html']", "6:14: \"index.html\" is no path to try: "),
        ("directory = 'a'\ntry-files = ['/a', '/../b']", "6:20: \"/../b\" is no path to try: "),
        ("directory = 'a'\ntry-files = '/x{path}'", "6:13: \"/x{path}\" is no path to try: "),
        ("origin = 'http://a'\ntry-files = '/x'", "6:13: `try-files` needs a `directory`"),
        ("directory = 'a'\nerror-pages = { 200 = 'a' }", "6:17: `200` is no status of an error: "),
        ("directory = 'a'\nerror-pages = { 404 = 1 }", "6:23: the page of `404` is a file, as \"404.html\""),
        ("directory = 'a'\nremove-headers = ['a b']", "6:19: `a b` is no name of a header field"),
        ("directory = 'a'\nremove-headers = 'Content-Encoding'", "6:18: `content-encoding` says how to read"),
        ("directory = 'a'\nremove-headers = 'transfer-encoding'", "6:18: `transfer-encoding` is written by"),
        ("directory = 'a'\nheaders = { Keep-Alive = 'x' }", "6:13: `keep-alive` is written by the server"),
        ("directory = 'a'\nheaders = { x = \"a\\r\\nb: c\" }", "6:17: the value of `x` cannot be sent: "),
        ("directory = 'a'\nrequest-headers = { Host = 'x' }", "6:21: `host` chooses the site"),
        (
            "directory = 'a'\nrequest-headers = { x-forwarded-for = 'x' }",
            "6:21: `x-forwarded-for` is written by",
        ),
        ("directory = 'a'\nrequest-headers = { x = \"a\\nb\" }", "6:25: the value of `x` cannot be sent: "),
        ("directory = 'a'\nbody-limit = '1025 GiB'", "6:14: `body-limit` is "),
        ("directory = 'a'\naccess = { allow = 'all' }", "6:20: \"all\" is no network: "),
        ("directory = 'a'\naccess = { allow = [] }", "6:20: `allow` has no network, so nobody is served"),
        ("directory = 'a'\naccess = { users = {} }", "6:20: `users` has no user, so nobody is served"),
        (
            "directory = 'a'\naccess = { users = { ann = 'x' } }",
            "6:28: the password of `ann` is no hash by bcrypt",
        ),
        ("directory = 'a'\naccess = { realm = 'a\"b' }", "6:20: \"a\\\"b\" is no realm: "),
    ] {
        let found = of_site(lines);
        assert!(found.starts_with(expected), "{lines}: {found}");
    }
    let hash = "$2y$31$abcdefghijklmnopqrstuu5sQ3rW5bhqBZ0ZzqOtoKJwgC3Hsd8vK";
    let found = of_site(&format!("directory = 'a'\naccess = {{ users = {{ ann = '{hash}' }} }}"));
    assert!(found.starts_with("6:28: the hash of `ann` has the cost 31: use 4 to 14"), "{found}");
    let found = of_site(
        "directory = 'a'\naccess = { users = { 'a:b' = '$2y$04$abcdefghijklmnopqrstuu5sQ3rW5bhqBZ0ZzqOtoKJwgC3Hsd8vK' } }",
    );
    assert!(found.starts_with("6:22: \"a:b\" is no name of a user: "), "{found}");
    for (lines, expected) in [
        ("directory = 'a'\nrewrite = 'v2'", "9:11: \"v2\" is no path: begin with a slash"),
        ("directory = 'a'\nrewrite = '/a/../b'", "9:11: \"/a/../b\" is no path: "),
        ("directory = 'a'\nrewrite = '/b?c'", "9:11: \"/b?c\" is no path: "),
        (
            "directory = 'a'\nrewrite = '/b'\nstrip-prefix = true",
            "9:11: `rewrite` stands beside `strip-prefix`",
        ),
        ("redirect = '/a'\nrewrite = '/b'", "9:11: a redirect passes no request on"),
    ] {
        let found = route(lines);
        assert!(found.starts_with(expected), "{lines}: {found}");
    }
    let found = problems(&format!("trusted-proxies = ['x']\n{SITE}directory = 'a'"));
    assert!(found[0].starts_with("1:20: \"x\" is no network: "), "{found:?}");
}

#[test]
fn a_printed_configuration_reads_back_to_the_same() {
    let small = "[[listen]]\naddress = '[::]:80'\nredirect-to-https = true\n[[listen]]\nsocket = 'https'\n\
                 proxy-protocol = '10.0.0.0/8'\n[[site]]\nhosts = ['a.test', \"*.a.test\"]\ncertificate = 'self-signed'\n\
                 hsts = { max-age = '1 h' }\nerror-pages = { 404 = 'a', 5xx = 'b' }\naccess = { allow = '10.0.0.1' }\n\
                 headers = { X-A = 'b \\\"c\\\"' }\n[[site.route]]\npath = '/x'\nrewrite = '/y'\norigin = 'app'\n\
                 [[site.route]]\npath = '/z'\nstrip-prefix = true\ndirectory = 'a'\ntry-files = '/index.html'\n\
                 [[site.route]]\npath = '/r'\nredirect = '/s'\n[[origin]]\nname = 'app'\nto = ['http://a', { url = 'unix:/b' }]\n\
                 balance = 'cookie'\n[origin.health]\npath = '/h'\n[rates]\nrequests = { per-second = 1, burst = 2 }\n\
                 [guess]\nprefetch = 'u=5'\n[guess.types]\n'image/png' = 'u=1'\n[compression]\norigins = true\n[limits]\nidle = '5 s'";
    let example = include_str!("../../../contrib/serve/serve.toml");
    for text in [example, small, &format!("access-log = false\nwatch = true\n{SITE}directory = 'a'")] {
        let read =
            |text: &str| Config::parse("serve.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let printed = Config::print("serve.toml", text).unwrap();
        let (before, after) = (read(text), read(&printed));
        assert_eq!((&before.listen, &before.sites), (&after.listen, &after.sites), "{printed}");
        assert_eq!((&before.origins, &before.limits), (&after.origins, &after.limits), "{printed}");
        assert_eq!((&before.guess, &before.compression), (&after.guess, &after.compression), "{printed}");
        assert_eq!((&before.access_log, &before.watch), (&after.access_log, &after.watch), "{printed}");
        assert_eq!((&before.trusted, before.http3), (&after.trusted, after.http3), "{printed}");
        // All defaults are there.
        assert_eq!(Config::print("serve.toml", &printed).unwrap(), printed);
    }
    let printed = Config::print("serve.toml", small).unwrap();
    for line in
        ["http3 = true\n", "idle = \"5 s\"\n", "streams = 128\n", "https-port = 443\n", "# metrics: none\n"]
    {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(Config::print("serve.toml", "idel = 1").is_err());
}

#[test]
fn the_reverse_proxy_of_the_readme_is_five_lines() {
    let readme = include_str!("../../marcato-web/README.md");
    let example = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::parse("serve.toml", example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(example.lines().filter(|line| line.contains('=')).count(), 5);
    assert_eq!(config.sites[0].routes[0].content, Content::Origin("http://127.0.0.1:3000".to_owned()));
}

#[test]
fn wildcards_need_a_program_for_records_of_dns() {
    let text = |hook: &str| {
        format!(
            "[acme]\nstate = 'a'\nterms-agreed = true\n{hook}\n[[listen]]\naddress = '[::]:443'\n[[site]]\n\
             hosts = '*.a.test'\ncertificate = 'acme'\ndirectory = 'a'"
        )
    };
    let found = problems(&text(""));
    assert!(
        found.len() == 1 && found[0].contains("ACME by TLS-ALPN-01 issues nothing for `*.a.test`"),
        "{found:?}"
    );
    let config = Config::parse("serve.toml", &text("dns-hook = ['/bin/hook', 'zone']")).unwrap();
    assert_eq!(config.acme.unwrap().dns_hook, ["/bin/hook", "zone"]);
    for wrong in ["dns-hook = 'hook'", "dns-hook = []", "dns-hook = ['']"] {
        let found = problems(&text(wrong));
        assert!(
            found.iter().any(|one| one.contains("the program needs an absolute path")),
            "{wrong}: {found:?}"
        );
    }
}

#[test]
fn a_certificate_of_a_client_needs_an_authority() {
    let found = of_site("directory = 'a'\naccess = { client-certificate = true }");
    assert!(found.starts_with("6:33: there is no authority of clients: add `client-ca = "), "{found}");
    let text = format!(
        "client-ca = 'a.pem'\nmin-tls = '1.2'\n{SITE}directory = 'a'\naccess = {{ client-certificate = true }}"
    );
    let config = Config::parse("serve.toml", &text).unwrap();
    assert!(config.sites[0].handling.access.as_ref().unwrap().client_certificate.value);
    assert_eq!(config.min_tls, marcato_serve::config::TlsVersion::V1_2);
    let found = problems(&format!("min-tls = '1.1'\n{SITE}directory = 'a'"));
    assert!(found[0].starts_with("1:11: `min-tls` is \"1.1\": "), "{found:?}");
}
