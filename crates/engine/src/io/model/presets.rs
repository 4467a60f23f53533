//! Named devices. Bandwidth, requests per second and latency are from public data sheets; the
//! spread of times is an assumption, as data sheets do not give it.

/// A named device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    /// Options of the device.
    pub(crate) options: &'static str,
}

pub(crate) const PRESETS: [Preset; 5] = [
    // Micron 7450 PRO 7.68 TB, data sheet: typical latency, 4 KiB random, sequential.
    Preset {
        name: "nvme-gen4",
        options: "latency:80us/15us,dist:lognormal,jitter:10%,iops:1m/215k,bw:6800m/5600m,\
                  queues:128,pollqueues:1",
    },
    // Micron 9550 MAX 6.4 TB, data sheet: typical latency, 4 KiB random, sequential.
    Preset {
        name: "nvme-gen5",
        options: "latency:60us/15us,dist:lognormal,jitter:10%,iops:3300k/640k,bw:14000m/10000m,\
                  queues:256,pollqueues:1",
    },
    // Amazon EBS gp3 without extras: 3,000 IOPS, 125 MiB/s, single-digit milliseconds.
    Preset {
        name: "cloud-ssd",
        options: "latency:1ms,dist:lognormal,jitter:30%,iops:3000,bw:131072k,queues:64",
    },
    // HGST Ultrastar 7K4000, specification: mean seek 8.2 ms, 7,200/min, 171 MB/s.
    Preset { name: "hdd", options: "latency:100us,seek:12.4ms,jitter:3ms,bw:171m,queues:1" },
    // No device: the engine's own time.
    Preset { name: "null", options: "pollqueues:1" },
];
