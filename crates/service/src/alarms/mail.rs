//! E-mail, by SMTP.

use std::time::Duration;

use mail_send::{
    Credentials, SmtpClient, SmtpClientBuilder,
    mail_builder::{MessageBuilder, headers::raw::Raw},
};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result, web_tls};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::{
    book::{self, Tls},
    notice::Notice,
};
use crate::secrets;

/// Longest time that a server may take from the connection to its receipt: some answer only after a
/// spam check.
const PATIENCE: Duration = Duration::from_secs(120);

/// Mail server, sender and recipients.
pub(super) struct Mail {
    of: book::Mail,
    server: SmtpClientBuilder<String>,
}

impl Mail {
    /// # Errors
    /// Errors of the files that it names.
    pub(super) fn open(of: &book::Mail) -> Result<Self> {
        let config = web_tls(of.tls != Tls::Off, of.ca_file.as_deref())?;
        let mut server = SmtpClientBuilder::new_with_tls_connector(
            of.host.clone(),
            of.port,
            std::sync::Arc::new(config).into(),
        )
        .implicit_tls(of.tls == Tls::Implicit)
        .timeout(PATIENCE);
        if of.host.contains(':') {
            // An IPv6 address stands in brackets before a port.
            server.addr = format!("[{}]:{}", of.host, of.port);
        }
        if let Some((user, file)) = &of.login {
            let credentials = Credentials::Plain {
                username: user.clone(),
                secret: secrets::read_private(file)?,
            };
            server = server.credentials(credentials);
        }
        Ok(Self {
            of: of.clone(),
            server,
        })
    }

    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], [`ErrorKind::Unauthenticated`];
    /// [`ErrorKind::Busy`] for a server that refuses the mail.
    pub(super) async fn tell(&self, notice: &Notice) -> Result<()> {
        let send = async {
            match self.of.tls {
                Tls::Implicit | Tls::Started => {
                    self.send(self.server.connect().await?, notice).await
                }
                Tls::Off => self.send(self.server.connect_plain().await?, notice).await,
            }
        };
        let sent = timeout(PATIENCE, send).await;
        let sent = sent.unwrap_or(Err(mail_send::Error::Timeout));
        sent.map_err(|cause| self.failed(&cause))
    }

    async fn send<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut client: SmtpClient<T>,
        notice: &Notice,
    ) -> Result<(), mail_send::Error> {
        let host = self.of.from.rsplit('@').next().unwrap_or_default();
        let message = MessageBuilder::new()
            .from(self.of.from.as_str())
            .to(self.of.to.iter().map(String::as_str).collect::<Vec<_>>())
            .subject(notice.subject())
            .message_id(format!("{}@{host}", notice.id))
            // Suppresses out-of-office replies (RFC 3834).
            .header("Auto-Submitted", Raw::new("auto-generated"))
            .text_body(notice.body());
        client.send(message).await?;
        // The server has accepted the mail: its goodbye does not matter.
        let _ = client.quit().await;
        Ok(())
    }

    fn failed(&self, cause: &mail_send::Error) -> Error {
        use mail_send::Error as Cause;
        let kind = match cause {
            Cause::Timeout => ErrorKind::TimedOut,
            Cause::Io(_) | Cause::Tls(_) | Cause::InvalidTLSName => ErrorKind::Unreachable,
            Cause::Auth(_)
            | Cause::AuthenticationFailed(_)
            | Cause::UnsupportedAuthMechanism
            | Cause::MissingCredentials
            | Cause::MissingStartTls => ErrorKind::Unauthenticated,
            Cause::Base64(_)
            | Cause::UnparseableReply
            | Cause::UnexpectedReply(_)
            | Cause::MissingMailFrom
            | Cause::MissingRcptTo => ErrorKind::Busy,
        };
        let server = format!("the mail server {}", self.of.host);
        let error = Error::new(kind, "tell", server).at(Locus::Destination);
        error.cause(cause.to_string().replace(posthaste_types::is_obeyed, " "))
    }
}
