//! The tests of full disks once more, where the disk tells of free space that cannot be had: quotas of a user, a folder or a
//! subvolume, and thin volumes.

use thalweg_env::sim::SimEnv;

const HIDES_QUOTA: bool = true;

fn machine(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    sim.set_hides_quota(true);
    sim
}

#[path = "copy_on_write.rs"]
mod copy_on_write;
#[path = "full_disk.rs"]
mod full_disk;
#[path = "full_disk_kills.rs"]
mod full_disk_kills;
