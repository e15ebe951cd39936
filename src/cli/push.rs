//! Where reports are pushed, and with which identity: `--push` and its options.

use ureq::http::Uri;

use super::Surroundings;
use super::options::PushOptions;
use super::typed::Typed;
use super::values::{self, STDOUT, shown};
use crate::config::{self, Push, Secret, Token};

/// Default maximum of bytes in the spool.
const SPOOL_BYTES: u64 = 64 << 20;

/// The token comes from the environment or a file: all users can read a command line.
const TOKEN: &str = config::PUSH_TOKEN;

/// Maximum characters of a label; Pyroscope accepts some more.
const LABEL_MAX: usize = 1024;

/// Reserved labels: the profiles themselves set them.
const TAKEN: [&str; 2] = ["group", "idle"];

impl PushOptions {
    /// Returns whether reports are pushed.
    pub fn is_given(&self) -> bool {
        self.push.is_some()
    }

    /// Returns an option that has no effect, because `--push` is missing.
    pub fn without_server(&self) -> Option<&'static str> {
        let options = [
            ("--push-label", !self.push_label.is_empty()),
            ("--push-token-file", self.push_token_file.is_some()),
            ("--push-tenant", self.push_tenant.is_some()),
            ("--push-spool", self.push_spool.is_some()),
            ("--push-spool-bytes", self.push_spool_bytes.is_some()),
        ];
        let first = options.into_iter().find_map(|(option, given)| given.then_some(option));
        first.filter(|_| !self.is_given())
    }
}

pub fn push(typed: &Typed, surroundings: &Surroundings) -> Result<Option<Push>, String> {
    let Some(text) = &typed.push.push else { return Ok(None) };
    let address = address(text)?;
    let token = token(typed, surroundings)?;
    if token.is_some() && !address.encrypted && !address.loopback {
        return Err("`--push` over http:// would send the token in the clear; use https://".into());
    }
    let tenant = typed.push.push_tenant.as_deref().map(|text| match is_word(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`--push-tenant {}` is no tenant's name: letters, digits and signs, no blank",
            shown(text)
        )),
    });
    let mut labels: Vec<(String, String)> = Vec::new();
    for text in &typed.push.push_label {
        let (key, value) = label(text)?;
        if labels.iter().any(|(other, _)| *other == key) {
            return Err(format!("`--push-label {key}=` is given twice; a label has one value"));
        }
        labels.push((key, value));
    }
    let alone = typed.output.output.is_none();
    if let (true, Some(option)) = (alone, written(typed)) {
        return Err(format!(
            "`{option}` is about reports that are written, and `--push` alone writes none; add `-o FILE`, or `-o {STDOUT}`"
        ));
    }
    if typed.push.push_spool.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        return Err("`--push-spool ''` names no directory".into());
    }
    let spool_bytes = typed
        .push
        .push_spool_bytes
        .as_ref()
        .map(|text| values::bytes("--push-spool-bytes", text))
        .transpose()?;
    Ok(Some(Push {
        endpoint: address.endpoint,
        token,
        tenant: tenant.transpose()?,
        labels,
        spool: typed.push.push_spool.clone(),
        spool_bytes: spool_bytes.unwrap_or(SPOOL_BYTES),
        alone,
    }))
}

/// Returns the first option given that says how reports are written.
fn written(typed: &Typed) -> Option<&'static str> {
    [("--format", typed.output.format.is_some()), ("--max-lines", typed.max_lines.is_some())]
        .into_iter()
        .find_map(|(option, given)| given.then_some(option))
}

#[derive(Debug)]
struct Address {
    endpoint: String,
    encrypted: bool,
    /// The address is loopback: traffic does not leave this machine.
    loopback: bool,
}

/// Parses the address. Errors never quote it, since it may hold a secret.
fn address(text: &str) -> Result<Address, String> {
    let text = text.trim();
    let host = text
        .split_once("://")
        .map_or(text, |(_, rest)| rest)
        .split(['/', '?', '#'])
        .next()
        .unwrap_or_default();
    if host.contains('@') {
        return Err(format!(
            "the address behind `--push` holds a user, and all users see the command line; put USER:PASSWORD into a file for `--push-token-file`, or into {TOKEN}"
        ));
    }
    if text.contains(['?', '#']) {
        return Err("the address behind `--push` ends before a `?` or `#`; labels are given with `--push-label`".into());
    }
    let wrong = || {
        format!(
            "`--push {}` is no address of a server, as https://pyroscope.example:4040",
            shown(text)
        )
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let (scheme, Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong());
    };
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let numbered = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|n| n > 0));
    if !matches!(scheme, Some("http" | "https")) || authority.host().is_empty() || !numbered {
        return Err(wrong());
    }
    let host = authority.host().trim_matches(['[', ']']);
    let loopback = match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    let path = uri.path().trim_end_matches('/');
    let path = if path.ends_with("/ingest") { path.to_owned() } else { format!("{path}/ingest") };
    let encrypted = scheme == Some("https");
    let endpoint = format!("{}://{authority}{path}", if encrypted { "https" } else { "http" });
    Ok(Address { endpoint, encrypted, loopback })
}

fn token(typed: &Typed, surroundings: &Surroundings) -> Result<Option<Token>, String> {
    match (&typed.push.push_token_file, &surroundings.push_token) {
        (Some(path), _) if path.as_os_str().is_empty() => {
            Err("`--push-token-file ''` names no file".into())
        }
        // An option of this run overrides the environment, which applies to all runs.
        (Some(path), _) => Ok(Some(Token::File(path.clone()))),
        (None, Some(bytes)) => match String::from_utf8(bytes.clone()) {
            Ok(text) if is_word(text.trim()) => {
                Ok(Some(Token::Text(Secret(text.trim().to_owned()))))
            }
            _ => Err(format!(
                "{TOKEN} is no token: letters, digits and signs, no blank; unset it if there is none"
            )),
        },
        (None, None) => Ok(None),
    }
}

/// Returns whether `text` may stand in a header.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a label by Pyroscope's syntax, which has no quoting.
fn label(text: &str) -> Result<(String, String), String> {
    let wrong = |why: &str| Err(format!("`--push-label {}` {why}", shown(text)));
    let Some((key, value)) = text.split_once('=') else {
        return wrong("is no label, as region=eu");
    };
    let (key, value) = (key.trim(), value.trim());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    if key.is_empty()
        || key.starts_with("__")
        || key.starts_with(|c: char| c.is_ascii_digit())
        || !key.chars().all(plain)
    {
        return wrong(
            "has no label's name: letters, digits, `_` and `.`, and no digit or `__` first",
        );
    }
    if TAKEN.contains(&key) {
        return wrong("is a label that the profiles bring themselves; take another name");
    }
    if key == "service_name" && !value.chars().all(|c| plain(c) || matches!(c, '-' | '/')) {
        return wrong("is no name of a service: letters, digits, `_`, `.`, `-` and `/`");
    }
    let fits = |c: char| !c.is_control() && !matches!(c, ',' | '{' | '}');
    if value.is_empty() || value.len() > LABEL_MAX || !value.chars().all(fits) {
        return wrong("has no label's value: text without commas and curly brackets");
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> String {
        address(text).unwrap_or_else(|sentence| panic!("{text}: {sentence}")).endpoint
    }

    #[test]
    fn an_address_is_that_of_the_server_or_of_its_ingest() {
        assert_eq!(endpoint("https://p.example"), "https://p.example/ingest");
        assert_eq!(endpoint(" HTTP://p.example:4040/ "), "http://p.example:4040/ingest");
        assert_eq!(
            endpoint("https://p.example/pyroscope/ingest/"),
            "https://p.example/pyroscope/ingest"
        );
        assert_eq!(endpoint("http://[::1]:4040/a"), "http://[::1]:4040/a/ingest");
        for text in [
            "",
            "p.example",
            "p.example:4040",
            "ftp://p.example",
            "https://",
            "https:///x",
            "https://a b",
            "https://p:x",
            "https://p:0",
        ] {
            let sentence = address(text).expect_err(text);
            assert!(sentence.contains("is no address of a server"), "{text}: {sentence}");
        }
        let loopback = |text: &str| address(text).expect("an address").loopback;
        for text in
            ["http://localhost:1", "http://127.8.0.1", "http://[::1]:4040", "http://LOCALHOST"]
        {
            assert!(loopback(text), "{text}");
        }
        for text in
            ["http://p.example", "http://10.0.0.1", "http://localhost.example", "http://[::2]"]
        {
            assert!(!loopback(text), "{text}");
        }
    }

    #[test]
    fn an_address_with_a_secret_is_refused_and_not_repeated() {
        for text in [
            "https://me:s3cret@p.example",
            "https://s3cret@p.example",
            "me:s3cret@p.example",
            "https://p.example/?token=s3cret",
            "https://p.example#s3cret",
        ] {
            let sentence = address(text).expect_err(text);
            assert!(!sentence.contains("s3cret"), "{sentence}");
        }
    }

    #[test]
    fn labels_are_those_that_the_server_takes() {
        assert_eq!(label("region=eu west").expect("a label"), ("region".into(), "eu west".into()));
        assert_eq!(label(" a.b = c=d ").expect("a label"), ("a.b".into(), "c=d".into()));
        assert!(label("service_name=shop/web-1").is_ok());
        let long = format!("a={}", "x".repeat(2000));
        for text in [
            "",
            "region",
            "=x",
            "a-b=c",
            "1a=b",
            "__name__=x",
            "a=",
            "a=b,c",
            "a={b}",
            "a=b\u{7}c",
            "group=x",
            "idle=x",
            "service_name=a b",
            &long,
        ] {
            assert!(label(text).is_err(), "{text}");
        }
    }
}
