//! Text that is kept with an attachment: the device's name, and the settings.
//!
//! The name is for whoever finds the attachment when the device is gone.

use marcato_kernel::{Attachment, Device, Pinned, Queue, Seat, Tree};
use serde::{Deserialize, Serialize};

use super::settings::Settings;
use super::{CrqError, plan};

/// Text that is kept with an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    pub(super) device: String,
    #[serde(default)]
    pub(super) settings: Settings,
    /// Classes with CRQ in place of their queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) seats: Vec<Seat>,
}

impl Note {
    pub(super) fn new(device: &Device, settings: &Settings, seats: &[Seat]) -> Self {
        Self { device: device.name.clone(), settings: settings.clone(), seats: seats.to_vec() }
    }

    /// Returns which queues of CRQ are there no more, in words, if somebody has removed some of them.
    pub(super) fn lost(&self) -> Result<Option<String>, CrqError> {
        if !self.settings.shapes() {
            return Ok(None);
        }
        if self.seats.is_empty() {
            let is_there = Queue::all(&self.device)?.iter().any(plan::is_own);
            return Ok((!is_there).then(|| "queues gone".to_owned()));
        }
        let tree = Tree::read(&self.device)?;
        let lost = self.seats.iter().filter(|seat| !tree.has(seat)).map(|seat| seat.class.to_string());
        let lost: Vec<String> = lost.collect();
        Ok((!lost.is_empty()).then(|| format!("queues of {} gone", lost.join(", "))))
    }

    /// Reads the note of a device's attachment.
    pub(super) fn of(attachment: &Attachment, device: &Device) -> Result<Self, CrqError> {
        Self::from_toml(&attachment.note()?).map_err(|why| CrqError::Settings {
            origin: format!("the settings of {}", device.name),
            why: format!("{why}; `marcato crq detach` and `attach` write them anew"),
        })
    }

    /// Reads the note of pins, if they have a readable one.
    pub(super) fn of_pinned(pinned: &Pinned) -> Option<Self> {
        Self::from_toml(&pinned.note()?).ok()
    }

    fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }

    pub(super) fn to_toml(&self) -> Result<String, CrqError> {
        toml::to_string(self)
            .map_err(|error| CrqError::Settings { origin: "settings".to_owned(), why: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::Rate;

    use super::*;

    #[test]
    fn a_note_keeps_the_name_and_the_settings() {
        let settings = Settings { rate: Some(Rate::from_mbps(20)), share: Some(60), ..Settings::default() };
        for settings in [settings, Settings::default()] {
            let seat = Seat { class: "1:10".parse().unwrap(), handle: 0xc500, before: None };
            let note = Note { device: "wan".to_owned(), settings, seats: vec![seat] };
            assert_eq!(Note::from_toml(&note.to_toml().unwrap()), Ok(note));
        }
        assert!(Note::from_toml("").is_err());
    }
}
