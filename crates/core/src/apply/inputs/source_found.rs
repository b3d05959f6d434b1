use alloc::string::String;
use posthaste_types::{ByteRate, SourceId};

use crate::state::{Link, Source, State};

/// Registers a source that was looked at and answered; it is tried again despite earlier
/// failures.
pub(crate) fn on_source_found(
    state: &mut State,
    id: SourceId,
    name: String,
    rate_max: Option<ByteRate>,
) {
    let (now, settings) = (state.now, &state.settings);
    let source = state.arrivals.sources.entry(id).or_insert_with(|| {
        let link = Link::new(rate_max, &settings.prior);
        Source::new(name.clone(), link)
    });
    source.name = name;
    source.link.set_advert(now, rate_max, settings);
    source.forgive();
}
