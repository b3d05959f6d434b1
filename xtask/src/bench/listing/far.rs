//! The far host's servers, and their trees.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use posthaste_testbed::{Place, S3Server, SshServer};

use super::super::site::{Site, output};

/// Host with the servers, and the one with the clients and the service.
const FAR: &str = "far";
pub const NEAR: &str = "near";

/// Directories in a directory, and files in each.
const FAN_OUT: usize = 10;
const FILES: usize = 3;

/// Protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Sftp,
    S3,
}

impl Protocol {
    pub const ALL: [Self; 2] = [Self::Sftp, Self::S3];

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sftp => "SFTP",
            Self::S3 => "S3",
        }
    }
}

/// A tree at a server.
#[derive(Debug)]
pub struct Tree {
    pub directories: usize,
    /// Path on the disk that all hosts see.
    pub path: PathBuf,
    /// Directories of the tree, each after its parent; the first is the tree itself.
    pub below: Vec<String>,
}

impl Tree {
    /// Returns the number of lines of a full listing: all but the tree itself.
    pub fn entries(&self) -> usize {
        self.directories - 1 + self.directories * FILES
    }
}

/// Servers on the far host.
pub struct Far {
    pub ssh: SshServer,
    pub s3: S3Server,
    pub address: IpAddr,
    folder: PathBuf,
    /// Home of the clients and the service, so that nobody else's configuration is read.
    pub home: PathBuf,
}

impl Far {
    /// Starts them, and registers them with posthaste.
    ///
    /// # Errors
    /// Fails if one does not start.
    pub fn start(site: &Site, folder: &Path) -> anyhow::Result<Self> {
        let text = output(site.command(NEAR, "getent").args(["hosts", FAR]))?;
        let address = text.split_whitespace().next();
        let address: IpAddr = address.context("the far host has no address")?.parse()?;
        let place = Place::new(address, site.words(FAR));
        let far = Self {
            ssh: SshServer::start_at(&place)?,
            s3: S3Server::start_at(&place, folder)?,
            address,
            folder: folder.to_owned(),
            home: folder.join("home"),
        };
        far.write_profiles()?;
        Ok(far)
    }

    fn write_profiles(&self) -> anyhow::Result<()> {
        let options = self.ssh.options();
        let options: Vec<String> = options.iter().map(|option| format!("{option:?}")).collect();
        let profiles = format!(
            "[sftp]\nurl = \"{}\"\nssh_options = [{}]\n\n[s3]\nurl = \"s3://{}\"\nendpoint = \"{}\"\n\
             access_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
            self.ssh.address("/"),
            options.join(", "),
            S3Server::BUCKET,
            self.s3.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY,
        );
        let file = self.home.join(".config/posthaste/profiles.toml");
        fs::create_dir_all(file.parent().context("profiles have a folder")?)?;
        fs::write(&file, profiles)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(())
    }

    /// Makes a tree of so many directories: ten in each, level after level, with three small files.
    ///
    /// # Errors
    /// Fails if the disk refuses.
    pub fn make(&self, protocol: Protocol, directories: usize) -> anyhow::Result<Tree> {
        let root = match protocol {
            Protocol::Sftp => self.folder.join("sftp"),
            Protocol::S3 => self.s3.bucket_folder(),
        };
        let path = root.join(format!("tree{directories}"));
        let mut below = vec![String::new()];
        for number in 1..directories {
            let parent = &below[(number - 1) / FAN_OUT];
            below.push(format!("{parent}/d{}", (number - 1) % FAN_OUT));
        }
        for directory in &below {
            let directory = path.join(directory.trim_start_matches('/'));
            fs::create_dir_all(&directory)?;
            for number in 0..FILES {
                fs::write(directory.join(format!("file{number}")), "content")?;
            }
        }
        Ok(Tree {
            directories,
            path,
            below,
        })
    }

    /// Returns the file with the key for the far host.
    pub fn ssh_key(&self) -> String {
        let options = self.ssh.options();
        let key = options
            .iter()
            .find_map(|option| option.strip_prefix("IdentityFile="));
        key.unwrap_or_default().to_owned()
    }
}
