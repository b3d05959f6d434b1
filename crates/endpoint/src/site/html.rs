//! Tags and escapes of HTML.

/// Characters that pages write by name (HTML, section 13.5): those that occur in names of files.
const NAMED: [(&str, char); 36] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", '\u{a0}'),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("hyphen", '\u{2010}'),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("grave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("rcub", '}'),
    ("rbrace", '}'),
    ("verbar", '|'),
];

/// Longest name or number of a character, in bytes.
const NAME_BYTES_MAX: usize = 10;

/// Resolves the escapes of an attribute. A broken escape stays as it is.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let name = rest[1..].split_once(';').map(|(name, _)| name);
        match name.and_then(sign_of) {
            Some((sign, len)) => {
                plain.push(sign);
                rest = &rest[len + 2..];
            }
            None => {
                plain.push('&');
                rest = &rest[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// Returns the character of a name or a number, and the length of that.
fn sign_of(name: &str) -> Option<(char, usize)> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let number = match name.strip_prefix('#') {
        Some(number) => number,
        None => {
            let (_, sign) = NAMED.iter().find(|(found, _)| *found == name)?;
            return Some((*sign, name.len()));
        }
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    let sign = char::from_u32(code.ok()?).filter(|sign| *sign != '\0')?;
    Some((sign, name.len()))
}

/// Returns the `href` of each tag of this name.
pub(super) fn hrefs<'a>(page: &'a str, tag: &'static str) -> impl Iterator<Item = &'a str> {
    links(page, tag).map(|(link, _)| link)
}

/// Returns the `href` of each link of a page, and the start of its text, tags and all.
pub(super) fn anchors(page: &str) -> impl Iterator<Item = (&str, &str)> {
    /// Characters of a text that are looked at: a picture and some words.
    const TEXT_MAX: usize = 300;
    links(page, "a").map(|(link, rest)| {
        let text = rest.strip_prefix('>').unwrap_or(rest);
        let most = text.char_indices().nth(TEXT_MAX);
        let text = &text[..most.map_or(text.len(), |(end, _)| end)];
        let ends = text.match_indices("</").map(|(end, _)| end);
        let mut ends = ends.filter(|end| {
            let tag = text.get(end + 2..end + 3);
            tag.is_some_and(|tag| tag.eq_ignore_ascii_case("a"))
        });
        (link, &text[..ends.next().unwrap_or(text.len())])
    })
}

/// Returns the `href` of each tag of this name, and the page from the end of the tag.
fn links<'a>(page: &'a str, tag: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut rest = page;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find('<')?;
            rest = &rest[start + 1..];
            let (Some(name), Some(after)) = (rest.get(..tag.len()), rest.get(tag.len()..)) else {
                continue;
            };
            if !name.eq_ignore_ascii_case(tag) || !after.starts_with(char::is_whitespace) {
                continue;
            }
            let (link, left) = href_of(after);
            rest = left;
            if let Some(link) = link {
                return Some((link, rest));
            }
        }
    })
}

/// Returns the `href` among the attributes at the start of a text, and the text behind them.
fn href_of(text: &str) -> (Option<&str>, &str) {
    let (mut rest, mut link) = (text, None);
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with('>') {
            return (link, rest);
        }
        let ends = |c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/');
        // A name has at least one character, so that this ends.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = rest[first..].find(ends).map_or(rest.len(), |at| first + at);
        let (name, after) = rest.split_at(end);
        rest = after.trim_start();
        let Some(value) = rest.strip_prefix('=') else {
            continue;
        };
        let value = value.trim_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            Some(_) | None => {
                let end = value.find(|c: char| c.is_whitespace() || c == '>');
                value.split_at(end.unwrap_or(value.len()))
            }
        };
        if link.is_none() && name.eq_ignore_ascii_case("href") {
            link = Some(value);
        }
        rest = after;
    }
}

/// Returns whether the title or a heading of a page says that it is an index.
pub(super) fn is_titled_index(page: &str) -> bool {
    let page = page.to_ascii_lowercase();
    let says = |text: &str| {
        ["index of", "directory listing", ">directory:"]
            .iter()
            .any(|known| text.contains(known))
    };
    ["title", "h1", "h2", "h3"].iter().any(|tag| {
        let (start, end) = (format!("<{tag}"), format!("</{tag}"));
        let texts = page.split(&*start).skip(1);
        let mut texts = texts.filter_map(|text| text.split_once(&*end));
        texts.any(|(text, _)| says(text))
    })
}

/// Returns whether the text of a link says that it leads to the directory above, as those of indexes
/// do.
pub(super) fn says_parent(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["parent", "..", "up to"]
        .iter()
        .any(|known| text.contains(known))
}

/// Returns whether a page is what Go's file server sends of an empty directory.
pub(super) fn is_empty_list(page: &str) -> bool {
    page.trim_end().ends_with("<pre>\n</pre>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once() {
        for (text, plain) in [
            ("a&#43;b&#x2B;c&#X2b;d&plus;e", "a+b+c+d+e"),
            ("&amp;lt;&lt;&#39;&apos;", "&lt;<''"),
            ("&#xE9;&#233;", "\u{e9}\u{e9}"),
            ("a&b=c;d", "a&b=c;d"),
            ("&", "&"),
            ("&#;&#x;&#xD800;&#0;&none;", "&#;&#x;&#xD800;&#0;&none;"),
            ("&é;&&amp;", "&é;&&"),
        ] {
            assert_eq!(unescape(text), plain);
        }
    }
}
