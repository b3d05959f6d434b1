//! Questions to the stand-in, checked against the schemas.

use quick_xml::{
    NsReader,
    events::{BytesStart, Event},
    name::ResolveResult,
};

pub(super) const SOAP: &str = "http://schemas.xmlsoap.org/soap/envelope/";
pub(super) const HEADERS: &str = "http://schemas.ogf.org/nsi/2013/12/framework/headers";
pub(super) const TYPES: &str = "http://schemas.ogf.org/nsi/2013/12/connection/types";
pub(super) const P2P: &str = "http://schemas.ogf.org/nsi/2013/12/services/point2point";
/// Elements that a type declares itself are in no namespace: the schemas say nothing else.
const LOCAL: &str = "";

/// An element with its content.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub name: String,
    pub space: String,
    pub text: String,
    pub version: Option<i64>,
    pub children: Vec<Node>,
}

impl Node {
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }

    /// Checks the children against a sequence of names, each with its least and greatest count.
    fn sequence(&self, space: &str, wanted: &[(&str, usize, usize)]) -> Result<(), String> {
        let mut at = 0;
        for (name, least, most) in wanted {
            let rest = self.children.iter().skip(at);
            let count = rest
                .take_while(|child| child.name == *name && child.space == space)
                .count();
            if count < *least || count > *most {
                return Err(format!("{count} {name} in {}", self.name));
            }
            at += count;
        }
        match self.children.get(at) {
            None => Ok(()),
            Some(other) => Err(format!(
                "{{{}}}{} has no place in {}",
                other.space, other.name, self.name
            )),
        }
    }
}

/// A question that conforms to the schemas.
#[derive(Debug)]
pub(super) struct Message {
    pub protocol: String,
    pub correlation: String,
    pub requester: String,
    pub provider: String,
    pub operation: String,
    pub body: Node,
}

fn parse(text: &str) -> Result<Node, String> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open = vec![Node::default()];
    loop {
        let (resolved, event) = reader
            .read_resolved_event()
            .map_err(|cause| cause.to_string())?;
        let top = open.last_mut().ok_or("more ends than starts")?;
        match event {
            Event::Start(tag) => open.push(node(&resolved, &tag)?),
            Event::End(_) => {
                let ended = open.pop().ok_or("more ends than starts")?;
                let above = open.last_mut().ok_or("more ends than starts")?;
                above.children.push(ended);
            }
            Event::Text(text) => top.text.push_str(&text),
            Event::GeneralRef(entity) => {
                let known = quick_xml::escape::resolve_predefined_entity(&entity);
                top.text.push_str(known.ok_or("an entity")?);
            }
            Event::Eof => break,
            Event::Decl(_) => {}
            Event::Empty(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::PI(_)
            | Event::DocType(_) => return Err("what no client needs to say".to_owned()),
        }
    }
    match open
        .pop()
        .map(|mut document| (document.children.pop(), open.is_empty()))
    {
        Some((Some(root), true)) => Ok(root),
        Some(_) | None => Err("it ends early".to_owned()),
    }
}

fn node(resolved: &ResolveResult<'_>, tag: &BytesStart<'_>) -> Result<Node, String> {
    let space = match resolved {
        ResolveResult::Bound(space) => space.0.to_owned(),
        ResolveResult::Unbound => String::new(),
        ResolveResult::Unknown(_) => return Err("a prefix without a namespace".to_owned()),
    };
    let version = tag
        .try_get_attribute("version")
        .map_err(|cause| cause.to_string())?;
    Ok(Node {
        name: tag.local_name().as_ref().to_owned(),
        space,
        version: version.and_then(|version| version.value.parse().ok()),
        ..Node::default()
    })
}

fn is_uuid(text: &str) -> bool {
    let Some(uuid) = text.strip_prefix("urn:uuid:") else {
        return false;
    };
    let words: Vec<&str> = uuid.split('-').collect();
    let hex = |word: &&str| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        word.bytes().all(digit)
    };
    words.iter().map(|word| word.len()).eq([8, 4, 4, 4, 12]) && words.iter().all(hex)
}

impl Message {
    /// Reads a question with its action.
    ///
    /// # Errors
    /// Fails if it violates the schemas.
    pub(super) fn read(text: &str, action: Option<&str>) -> Result<Self, String> {
        let mut envelope = parse(text)?;
        if envelope.name != "Envelope" || envelope.space != SOAP {
            return Err("no SOAP 1.1 envelope".to_owned());
        }
        envelope.sequence(SOAP, &[("Header", 1, 1), ("Body", 1, 1)])?;
        let mut body = envelope.children.pop().ok_or("no body")?;
        let soap_header = envelope.children.pop().ok_or("no header")?;
        soap_header.sequence(HEADERS, &[("nsiHeader", 1, 1)])?;
        let header = soap_header.child("nsiHeader").ok_or("no header")?;
        header.sequence(
            LOCAL,
            &[
                ("protocolVersion", 1, 1),
                ("correlationId", 1, 1),
                ("requesterNSA", 1, 1),
                ("providerNSA", 1, 1),
                ("replyTo", 0, 1),
            ],
        )?;
        let body = match (body.children.pop(), body.children.is_empty()) {
            (Some(only), true) if only.space == TYPES => only,
            _ => return Err("a body is one message of the connection types".to_owned()),
        };
        let wanted = format!(
            "http://schemas.ogf.org/nsi/2013/12/connection/service/{}",
            body.name
        );
        if action != Some(&*wanted) {
            return Err(format!("the action is {action:?}"));
        }
        let said = |name: &str| header.text_of(name).unwrap_or_default().to_owned();
        let message = Self {
            protocol: said("protocolVersion"),
            correlation: said("correlationId"),
            requester: said("requesterNSA"),
            provider: said("providerNSA"),
            operation: body.name.clone(),
            body,
        };
        if !is_uuid(&message.correlation) {
            return Err("the correlation is no URN of a UUID".to_owned());
        }
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), String> {
        let body = &self.body;
        match &*self.operation {
            "reserve" => check_reserve(body),
            "reserveCommit" | "reserveAbort" | "provision" | "release" | "terminate" => {
                body.sequence(LOCAL, &[("connectionId", 1, 1)])
            }
            "querySummarySync" => body
                .sequence(LOCAL, &[("connectionId", 0, usize::MAX)])
                .or_else(|_| body.sequence(LOCAL, &[("globalReservationId", 0, usize::MAX)]))
                .or_else(|_| body.sequence(LOCAL, &[("ifModifiedSince", 0, 1)])),
            "queryResultSync" => body.sequence(
                LOCAL,
                &[
                    ("connectionId", 1, 1),
                    ("startResultId", 0, 1),
                    ("endResultId", 0, 1),
                ],
            ),
            other => Err(format!("no operation {other}")),
        }
    }
}

fn check_reserve(body: &Node) -> Result<(), String> {
    body.sequence(
        LOCAL,
        &[
            ("connectionId", 0, 1),
            ("globalReservationId", 0, 1),
            ("description", 0, 1),
            ("criteria", 1, 1),
        ],
    )?;
    if body
        .text_of("globalReservationId")
        .is_some_and(|global| !is_uuid(global))
    {
        return Err("the globalReservationId is no URN of a UUID".to_owned());
    }
    let criteria = body.child("criteria").ok_or("no criteria")?;
    if criteria.version.is_some_and(|version| version < 1) {
        return Err("versions begin with one".to_owned());
    }
    let services: Vec<&Node> = criteria
        .children
        .iter()
        .skip_while(|child| child.space == LOCAL)
        .collect();
    let declared = Node {
        name: criteria.name.clone(),
        ..Node::default()
    };
    let names: Vec<&str> = criteria
        .children
        .iter()
        .take_while(|child| child.space == LOCAL)
        .map(|child| &*child.name)
        .collect();
    if !matches!(
        names[..],
        [] | ["schedule"] | ["serviceType"] | ["schedule", "serviceType"]
    ) {
        return Err(format!("{names:?} in {}", declared.name));
    }
    if let Some(schedule) = criteria.child("schedule") {
        schedule.sequence(LOCAL, &[("startTime", 0, 1), ("endTime", 0, 1)])?;
        let zoned = |at: &Node| {
            let time = at.text.split_once('T').map_or("", |(_, time)| time);
            time.ends_with('Z') || time.contains(['+', '-'])
        };
        if !schedule.children.iter().all(zoned) {
            return Err("a time without a zone".to_owned());
        }
    }
    for service in services {
        match (&*service.space, &*service.name) {
            (P2P, "p2ps") => service.sequence(
                LOCAL,
                &[
                    ("capacity", 1, 1),
                    ("directionality", 1, 1),
                    ("symmetricPath", 0, 1),
                    ("sourceSTP", 1, 1),
                    ("destSTP", 1, 1),
                ],
            )?,
            (P2P, "capacity") => service.sequence(LOCAL, &[])?,
            (space, name) => return Err(format!("{{{space}}}{name} in criteria")),
        }
    }
    Ok(())
}
