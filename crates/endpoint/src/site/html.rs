//! Escapes of HTML.

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
