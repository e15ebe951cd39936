//! The one request: `POST` over HTTP/1.1, with TLS if the address says so. Certificates are always
//! verified.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::{protocol, resolve};
use crate::config::{Push, Token};
use crate::model::vocabulary::text::clean;
use crate::sinks::file;

/// A server that accepts profiles.
pub trait Server: Send {
    fn post(&mut self, query: &str, body: &[u8], within: Duration) -> Answer;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// `words`: the server's error message, cleaned.
    Said { status: u16, retry_after: Option<Duration>, words: String },
    /// No answer.
    Failed(String),
}

/// Maximum time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Maximum idle time of a connection that is reused; the server may have closed an older one.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer.
const ANSWER_MAX: u64 = 4 << 10;
/// Maximum bytes of a token.
const TOKEN_MAX: u64 = 16 << 10;
/// Maximum characters of an answer's text that are reported.
const REPORTED_MAX: usize = 200;

pub struct Http {
    agent: Agent,
    endpoint: String,
    token: Option<Token>,
    tenant: Option<String>,
}

impl Http {
    /// Creates the client without connecting. Fails with one sentence if no connection can ever
    /// work.
    pub fn new(push: &Push) -> Result<Http, String> {
        let encrypted = push.endpoint.starts_with("https://");
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // The token is for the named server only.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .max_idle_age(IDLE_MAX)
            .user_agent(concat!("sampletop/", env!("CARGO_PKG_VERSION")));
        if encrypted {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = TlsConfig::builder()
                .root_certs(authorities()?)
                .unversioned_rustls_crypto_provider(provider);
            config = config.tls_config(tls.build());
        } else {
            // A proxy from the environment would see the token of a server on this machine.
            config = config.proxy(None);
        }
        resolve::load_no_modules();
        let Push { endpoint, token, tenant, .. } = push.clone();
        let http = Http { agent: config.build().into(), endpoint, token, tenant };
        http.authorization()?;
        Ok(http)
    }

    /// Returns the header's value. Reads the file each time, since tokens are rotated while
    /// sampletop runs.
    fn authorization(&self) -> Result<Option<String>, String> {
        let text = match &self.token {
            None => return Ok(None),
            Some(Token::Text(secret)) => secret.0.clone(),
            Some(Token::File(path)) => {
                let shown = file::shown(path);
                let mut line = String::new();
                let read = File::open(path)
                    .and_then(|file| BufReader::new(file.take(TOKEN_MAX)).read_line(&mut line));
                read.map_err(|error| {
                    format!("cannot read the token in `{shown}`: {}", file::why(&error))
                })?;
                let line = line.trim();
                if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(format!(
                        "the first line of `{shown}` is no token: letters, digits and signs, no blank"
                    ));
                }
                line.to_owned()
            }
        };
        // No token has a colon (RFC 6750).
        Ok(Some(match text.contains(':') {
            true => format!("Basic {}", BASE64_STANDARD.encode(text)),
            false => format!("Bearer {text}"),
        }))
    }
}

impl Server for Http {
    fn post(&mut self, query: &str, body: &[u8], within: Duration) -> Answer {
        let authorization = match self.authorization() {
            Ok(authorization) => authorization,
            Err(sentence) => return Answer::Failed(sentence),
        };
        let mut request = self
            .agent
            .post(format!("{}?{query}", self.endpoint))
            .config()
            .timeout_global(Some(within))
            .build();
        request = request.header("Content-Type", "application/octet-stream");
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("X-Scope-OrgID", tenant);
        }
        match request.send(body) {
            Ok(mut response) => {
                let status = response.status().as_u16();
                let header =
                    |name| response.headers().get(name).and_then(|value| value.to_str().ok());
                let retry_after =
                    header("Retry-After").and_then(|text| protocol::retry_after(text, unix_ns()));
                let moved = header("Location").map(|to| format!("it is at {to}"));
                let mut words = Vec::new();
                // A truncated answer suffices for an error message.
                let _ = response.body_mut().as_reader().take(ANSWER_MAX).read_to_end(&mut words);
                let words = moved.unwrap_or_else(|| String::from_utf8_lossy(&words).into_owned());
                Answer::Said {
                    status,
                    retry_after,
                    words: clean(words.trim(), REPORTED_MAX).into_owned(),
                }
            }
            Err(error) => Answer::Failed(clean(&describe(&error), REPORTED_MAX).into_owned()),
        }
    }
}

fn describe(error: &ureq::Error) -> String {
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => {
            error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        }
        _ => None,
    };
    match (error, tls) {
        (_, Some(rustls::Error::InvalidCertificate(why))) => format!(
            "its certificate is not trusted ({why}); add that of its authority to this machine's, or to a file that SSL_CERT_FILE names"
        ),
        (_, Some(error)) => format!("TLS: {error}"),
        (ureq::Error::Io(error), _) => file::why(error),
        (ureq::Error::Timeout(_), _) => "it does not answer in time".into(),
        (ureq::Error::HostNotFound, _) => "there is no host of that name".into(),
        (error, _) => error.to_string(),
    }
}

/// Returns the certificate authorities that this machine trusts, including a company's own.
fn authorities() -> Result<RootCerts, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| {
            format!(" ({})", clean(&error.to_string(), REPORTED_MAX))
        });
        return Err(format!(
            "no certificate authorities are found on this machine{why}; install ca-certificates, or name a file by SSL_CERT_FILE"
        ));
    }
    let certificates = found.certs.iter().map(|of| Certificate::from_der(of).to_owned());
    Ok(RootCerts::from(certificates))
}

fn unix_ns() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(0)
}
