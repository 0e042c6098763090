//! Locations (RFC 1876).
//!
//! In: degrees with optional minutes and seconds, altitude, optional size and precisions. Out: whole thousandths of an
//! arc second and centimetres, so nothing is lost to rounding; always printed in full. Size and precisions have one
//! significant digit on the wire; further digits are cut off, as the server does.

use std::fmt;

use super::error::RdataError;
use super::scan::Scanner;

const ARC_DEGREE: i64 = 3_600_000;
const ARC_MINUTE: i64 = 60_000;
const LOWEST_CENTIMETRES: i64 = -10_000_000;
/// The wire format allows twice as much, but PowerDNS counts in 32 bits with a sign.
const HIGHEST_CENTIMETRES: i64 = 2_147_483_647;
/// The wire format allows 9 × 10⁹ centimetres, but PowerDNS counts in 32 bits.
const LARGEST_EXTENT: i64 = 4_000_000_000;

/// A place on earth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc {
    /// Thousandths of an arc second, north positive.
    pub latitude: i32,
    /// Thousandths of an arc second, east positive.
    pub longitude: i32,
    /// Centimetres above the reference spheroid.
    pub altitude: i64,
    /// Diameter of the place in centimetres, one significant digit.
    pub size: i64,
    /// Horizontal precision in centimetres, one significant digit.
    pub horizontal: i64,
    /// Vertical precision in centimetres, one significant digit.
    pub vertical: i64,
}

impl Loc {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        let latitude = angle(scan, "latitude", 90, ["N", "S"])?;
        let longitude = angle(scan, "longitude", 180, ["E", "W"])?;
        let altitude = scan.word()?;
        let altitude = metres(altitude)
            .filter(|cm| (LOWEST_CENTIMETRES..=HIGHEST_CENTIMETRES).contains(cm))
            .ok_or_else(|| scan.field("altitude", "metres from -100000.00 to 21474836.47, such as -2.00m", altitude))?;
        Ok(Self {
            latitude,
            longitude,
            altitude,
            size: extent(scan, "size", 100)?,
            horizontal: extent(scan, "horizontal precision", 1_000_000)?,
            vertical: extent(scan, "vertical precision", 1_000)?,
        })
    }
}

/// Degrees, optional minutes and seconds, and a direction; the first direction is positive.
fn angle(
    scan: &mut Scanner<'_>,
    field: &'static str,
    max_degrees: i64,
    [positive, negative]: [&str; 2],
) -> Result<i32, RdataError> {
    const NEEDS: &str = "degrees, minutes, seconds and a direction, such as 52 22 23.000 N or 4 53 32.000 E";
    let mut total = 0;
    for (scale, decimals, below) in [(ARC_DEGREE, 0, 181), (ARC_MINUTE, 0, 60), (1, 3, 60_000), (0, 0, 0)] {
        let word = scan.word()?;
        let sign = match word {
            _ if word.eq_ignore_ascii_case(positive) => 1,
            _ if word.eq_ignore_ascii_case(negative) => -1,
            _ => {
                let part = fixed(word, decimals).filter(|part| (0..below).contains(part));
                total += scale * part.ok_or_else(|| scan.field(field, NEEDS, word))?;
                continue;
            }
        };
        let valid = scale != ARC_DEGREE && total <= max_degrees * ARC_DEGREE;
        let signed = i32::try_from(sign * total).ok().filter(|_| valid);
        return signed.ok_or_else(|| scan.field(field, NEEDS, word));
    }
    Err(scan.shape())
}

/// An optional size or precision, cut to one significant digit.
fn extent(scan: &mut Scanner<'_>, field: &'static str, default: i64) -> Result<i64, RdataError> {
    let Some(word) = scan.optional_word() else { return Ok(default) };
    let centimetres = metres(word)
        .filter(|cm| (0..=LARGEST_EXTENT).contains(cm))
        .ok_or_else(|| scan.field(field, "metres from 0 to 40000000, such as 10m", word))?;
    let mut scale = 1;
    while centimetres / scale > 9 {
        scale *= 10;
    }
    Ok(centimetres / scale * scale)
}

/// Metres with an optional unit, in centimetres.
fn metres(word: &str) -> Option<i64> {
    fixed(word.strip_suffix(['m', 'M']).unwrap_or(word), 2)
}

/// A decimal number with at most so many decimals, scaled to a whole number.
fn fixed(word: &str, decimals: usize) -> Option<i64> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let valid = (1..=9).contains(&whole.len()) && fraction.len() <= decimals;
    if !valid || !only_digits(whole) || !only_digits(fraction) || (digits.contains('.') && fraction.is_empty()) {
        return None;
    }
    let value: i64 = format!("{whole}{fraction:0<decimals$}").parse().ok()?;
    Some(if negative { -value } else { value })
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latitude, longitude, altitude, size, horizontal, vertical } = self;
        // On the equator and the prime meridian the server prints S and W.
        for (angle, [positive, negative]) in [(latitude, ["N", "S"]), (longitude, ["E", "W"])] {
            let arc = i64::from(*angle).abs();
            let (degrees, minutes, milliseconds) = (arc / ARC_DEGREE, arc / ARC_MINUTE % 60, arc % ARC_MINUTE);
            let direction = if *angle > 0 { positive } else { negative };
            write!(f, "{degrees} {minutes} {}.{:03} {direction} ", milliseconds / 1000, milliseconds % 1000)?;
        }
        let sign = if *altitude < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:02}m", altitude.abs() / 100, altitude.abs() % 100)?;
        for extent in [size, horizontal, vertical] {
            write!(f, " {}.{:02}m", extent / 100, extent % 100)?;
        }
        Ok(())
    }
}
