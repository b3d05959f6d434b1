//! Paths relative to the root of an endpoint: bytes, with `/` between names.

/// Appends `name` to a relative path.
#[must_use]
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_vec();
    }
    if name.is_empty() {
        return path.to_vec();
    }
    [path, b"/", name].concat()
}

/// Returns the path of `name` beside `path`.
#[must_use]
pub(crate) fn beside(path: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = path.len() - base_name(path).len();
    [&path[..folder], name].concat()
}

/// Returns the last component of a path.
#[must_use]
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
