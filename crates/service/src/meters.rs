//! Reads the rates of the paths and reports them to the mind.

use std::{sync::Arc, time::Duration};

use posthaste_core::contract::Input;
use posthaste_endpoint::Result;

use crate::{driver::Centre, meter::Sample, monotonic};

/// Interval of reading the meters.
const METER_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn read_all(centre: Arc<Centre>) -> Result<()> {
    loop {
        tokio::time::sleep(METER_EVERY).await;
        for (source, flow) in centre.flows.all() {
            if let Some(sample) = flow.sample(monotonic()) {
                let input = Input::Inbound {
                    source,
                    bytes: sample.bytes,
                    window: sample.window,
                    saturated: sample.saturated,
                };
                centre.tell(input).await?;
            }
        }
        for depot in centre.depots.all() {
            if let Some(sample) = depot.sample(monotonic()) {
                let Sample {
                    bytes,
                    window,
                    saturated,
                } = sample;
                let depot = depot.record.id;
                centre
                    .tell(Input::Throughput {
                        depot,
                        bytes,
                        window,
                        saturated,
                    })
                    .await?;
            }
        }
    }
}
