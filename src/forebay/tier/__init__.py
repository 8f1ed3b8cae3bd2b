"""The places for snapshots, each with a capacity in bytes and a bandwidth: device, host, disk."""
