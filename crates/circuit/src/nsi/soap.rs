//! Messages of NSI-CS in SOAP 1.1, after the published WSDL and schemas (OGF, 2013/12).
//!
//! The schemas leave local elements unqualified: only the outermost element of a message, the
//! header and the service have a namespace.

use std::fmt::Write as _;

use posthaste_endpoint::ErrorKind;
use quick_xml::escape::escape;

use super::tree::{self, Element};
use crate::line;

const SOAP: &str = "http://schemas.xmlsoap.org/soap/envelope/";
const HEADERS: &str = "http://schemas.ogf.org/nsi/2013/12/framework/headers";
const TYPES: &str = "http://schemas.ogf.org/nsi/2013/12/connection/types";
const P2P: &str = "http://schemas.ogf.org/nsi/2013/12/services/point2point";

/// Prefix of an action; the name of the operation follows.
const ACTION_BEGINS: &str = "http://schemas.ogf.org/nsi/2013/12/connection/service/";

/// Protocol that we speak to a provider.
const PROTOCOL: &str = "application/vnd.ogf.nsi.cs.v2.provider+soap";

/// Header of a message.
#[derive(Debug)]
pub(super) struct Header<'a> {
    /// Correlation id, `urn:uuid:…`; an answer repeats that of its request.
    pub correlation: &'a str,
    pub requester: &'a str,
    pub provider: &'a str,
    pub reply_to: Option<&'a str>,
}

/// Operation and its content, as XML without the outermost element.
#[derive(Debug)]
pub(super) struct Message {
    pub operation: &'static str,
    pub content: String,
}

/// Writes an element with a text.
pub(super) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

impl Message {
    /// Builds a message about one connection, as most operations need.
    pub(super) fn about(operation: &'static str, connection: &str) -> Self {
        Self {
            operation,
            content: element("connectionId", connection),
        }
    }

    /// Returns the header `SOAPAction`, in the quotes that SOAP 1.1 requires.
    pub(super) fn action(&self) -> String {
        format!("\"{ACTION_BEGINS}{}\"", self.operation)
    }

    pub(super) fn envelope(&self, header: &Header<'_>) -> String {
        let mut said = String::with_capacity(1024 + self.content.len());
        said.push_str(&element("protocolVersion", PROTOCOL));
        said.push_str(&element("correlationId", header.correlation));
        said.push_str(&element("requesterNSA", header.requester));
        said.push_str(&element("providerNSA", header.provider));
        if let Some(reply_to) = header.reply_to {
            said.push_str(&element("replyTo", reply_to));
        }
        let Self { operation, content } = self;
        let mut whole = String::with_capacity(said.len() + content.len() + 512);
        // Writing to a `String` can't fail.
        let _ = write!(
            whole,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <soap:Envelope xmlns:soap=\"{SOAP}\" xmlns:head=\"{HEADERS}\" xmlns:type=\"{TYPES}\" xmlns:p2p=\"{P2P}\">\
             <soap:Header><head:nsiHeader>{said}</head:nsiHeader></soap:Header>\
             <soap:Body><type:{operation}>{content}</type:{operation}></soap:Body></soap:Envelope>"
        );
        whole
    }
}

/// Answer of a provider.
#[derive(Debug)]
pub(super) struct Heard {
    /// Correlation id of the request, if the answer has it.
    pub correlation: Option<String>,
    /// Outermost element of the message, or the provider's exception.
    pub said: Result<Element, Exception>,
}

/// Reads an answer.
///
/// # Errors
/// The reason why it is none, in one line.
pub(super) fn hear(body: &[u8]) -> Result<Heard, String> {
    let mut envelope = tree::read(body)?;
    if envelope.name != "Envelope" || envelope.namespace != SOAP {
        return Err("it is no SOAP 1.1".to_owned());
    }
    let correlation = envelope
        .child("Header")
        .and_then(|header| header.find("correlationId"))
        .map(|correlation| correlation.text.clone());
    let at = envelope.children.iter().position(|one| one.name == "Body");
    let mut body = at
        .map(|at| envelope.children.swap_remove(at))
        .ok_or("it has no body")?;
    let message = body.children.pop().ok_or("its body is empty")?;
    let said = match &*message.name {
        "Fault" if message.namespace == SOAP => Err(Exception::of_fault(&message)),
        _ if message.namespace == TYPES => Ok(message),
        _ => return Err("it is no message of NSI-CS".to_owned()),
    };
    Ok(Heard { correlation, said })
}

/// Exception of a provider in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exception {
    /// Id of five digits (GFD.235); `None` in a fault unrelated to NSI.
    pub id: Option<String>,
    /// Text in one line.
    pub text: String,
    /// Available capacity, in megabits a second.
    pub fits_mbps: Option<u64>,
}

/// Meaning of an exception for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Refusal of the time, the rate or the ends.
    No,
    /// Fault of the provider or of ours.
    Broken(ErrorKind),
}

impl Exception {
    /// Finds the exception in an element; of a chain, the last one, which is the most specific.
    pub(super) fn within(element: &Element) -> Option<Self> {
        let mut at = element
            .find("serviceException")
            .or_else(|| element.find("childException"))?;
        while let Some(child) = at.child("childException") {
            at = child;
        }
        let variables = at.child("variables");
        let mut variables = variables.iter().flat_map(|all| all.all("variable"));
        let fits_mbps = variables.find_map(|variable| {
            // The specification leaves the form of feedback open: a limit, or a number.
            let feedback = variable.child("feedback")?;
            let limit = feedback.find("lte").or_else(|| feedback.find("capacity"));
            limit.unwrap_or(feedback).text.parse().ok()
        });
        let text = line::one(at.text_of("text").unwrap_or_default());
        Some(Self {
            id: at.text_of("errorId").map(line::one),
            text: if text.is_empty() {
                "the provider does not say why".to_owned()
            } else {
                text
            },
            fits_mbps,
        })
    }

    fn of_fault(fault: &Element) -> Self {
        Self::within(fault).unwrap_or_else(|| Self {
            id: None,
            text: line::one(fault.text_of("faultstring").unwrap_or("a fault")),
            fits_mbps: None,
        })
    }

    /// Returns the meaning by the id. With few exceptions its first three digits suffice.
    pub(super) fn meaning(&self) -> Meaning {
        use ErrorKind::{
            Busy, Conflict, Invalid, NotFound, Other, PermissionDenied, Unauthenticated,
            Unsupported,
        };
        let Some(id) = self.id.as_deref() else {
            return Meaning::Broken(Busy);
        };
        Meaning::Broken(match id {
            "00103" => Unsupported,
            "00203" | "00204" => NotFound,
            "00301" => Unauthenticated,
            // Unknown STPs, by their former and present ids.
            "00401" | "00402" | "00701" | "00702" => Invalid,
            _ => match id.get(..3) {
                Some("001") => Invalid,
                Some("002") => Conflict,
                Some("003") => PermissionDenied,
                Some("004" | "006" | "007") => return Meaning::No,
                Some("005") => Busy,
                Some(_) | None => Other,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(exception: &str) -> Exception {
        let text = format!(
            "<s:Envelope xmlns:s='{SOAP}'><s:Body><s:Fault><faultcode>s:Server</faultcode>\
             <faultstring>no\n way</faultstring><detail>{exception}</detail></s:Fault></s:Body></s:Envelope>"
        );
        hear(text.as_bytes()).unwrap().said.unwrap_err()
    }

    #[test]
    fn the_last_of_a_chain_of_exceptions_is_heard() {
        let heard = fault(
            "<t:serviceException xmlns:t='urn:t'><nsaId>a</nsaId><errorId>00500</errorId><text>below</text>\
             <childException><nsaId>b</nsaId><errorId>00705</errorId><text>too much</text><variables>\
             <variable type='capacity'><value>900</value><feedback><lte>300</lte></feedback></variable></variables>\
             </childException></t:serviceException>",
        );
        assert_eq!(
            (heard.id.as_deref(), heard.fits_mbps),
            (Some("00705"), Some(300))
        );
        assert_eq!(heard.meaning(), Meaning::No);
        let bare = fault("");
        assert_eq!((bare.id.as_deref(), &*bare.text), (None, "no way"));
        assert_eq!(bare.meaning(), Meaning::Broken(ErrorKind::Busy));
    }

    #[test]
    fn exceptions_are_told_apart_by_their_numbers() {
        let meaning = |id: &str| {
            let id = Some(id.to_owned());
            let text = String::new();
            Exception {
                id,
                text,
                fits_mbps: None,
            }
            .meaning()
        };
        for (id, kind) in [
            ("00101", ErrorKind::Invalid),
            ("00103", ErrorKind::Unsupported),
            ("00201", ErrorKind::Conflict),
            ("00203", ErrorKind::NotFound),
            ("00301", ErrorKind::Unauthenticated),
            ("00302", ErrorKind::PermissionDenied),
            ("00500", ErrorKind::Busy),
            ("00701", ErrorKind::Invalid),
            ("9", ErrorKind::Other),
            ("ü", ErrorKind::Other),
        ] {
            assert_eq!(meaning(id), Meaning::Broken(kind), "{id}");
        }
        for id in ["00403", "00600", "00602", "00704", "00705", "00720"] {
            assert_eq!(meaning(id), Meaning::No, "{id}");
        }
    }

    #[test]
    fn what_is_no_answer_is_not_heard() {
        for text in [
            "<a/>".to_owned(),
            "<Envelope><Body/></Envelope>".to_owned(),
            format!("<s:Envelope xmlns:s='{SOAP}'><s:Body/></s:Envelope>"),
            format!("<s:Envelope xmlns:s='{SOAP}'><s:Body><html/></s:Body></s:Envelope>"),
        ] {
            assert!(hear(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_said_is_escaped() {
        let message = Message::about("terminate", "a<b>&c");
        let header = Header {
            correlation: "urn:uuid:1",
            requester: "r",
            provider: "p",
            reply_to: None,
        };
        let whole = message.envelope(&header);
        assert!(
            whole.contains("<connectionId>a&lt;b&gt;&amp;c</connectionId>"),
            "{whole}"
        );
        let heard = hear(whole.as_bytes()).unwrap();
        assert_eq!(heard.correlation.as_deref(), Some("urn:uuid:1"));
        assert_eq!(heard.said.unwrap().text_of("connectionId"), Some("a<b>&c"));
    }
}
