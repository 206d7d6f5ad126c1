//! Login (RFC 7143, 6 and 11.12): identifies the initiator, checks its rights, and negotiates
//! parameters. A state machine over PDUs; its caller moves the bytes and limits the time.
//!
//! Limits: [`EXCHANGES_MAX`] requests, [`TEXT_MAX`] bytes of continued text. The initiator learns
//! nothing that it may not know: a wrong secret and an unknown user give the same answer.

use stele_ground::shown::is_unsafe;

use super::chap::{Algorithm, CHALLENGE, Challenge, Credentials};
use super::outbox::Outbox;
use super::parameters::{DATA_MAX, Parameters};
use super::pdu::{Frame, Header, opcode};
use super::text::{self, Pairs};

const EXCHANGES_MAX: u32 = 32;
const TEXT_MAX: usize = 64 << 10;
const NAME_MAX: usize = 223;
/// The longest data segment of a login request.
pub const LOGIN_DATA_MAX: usize = 8192;
const FULL_FEATURE: u8 = 3;
const PORTAL_GROUP: &str = "1";

/// Status class and detail of a login response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal(pub u8, pub u8);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Refusal::INITIATOR => f.write_str("it sent what no login holds"),
            Refusal::AUTHENTICATION => f.write_str("it did not prove who it is"),
            Refusal::NOT_FOUND => f.write_str("there is no such target for it"),
            Refusal::MISSING => f.write_str("it gave no name or no target"),
            Refusal::TOO_MANY => f.write_str("too many connections are there"),
            Refusal::UNAVAILABLE => f.write_str("the target takes no login now"),
            Refusal::RESOURCES => f.write_str("no connection is free for it"),
            Refusal::VERSION => f.write_str("it speaks a later version of the protocol only"),
            Refusal::SESSION_TYPE => f.write_str("it asked for a kind of session that is not served"),
            Refusal::NO_SESSION => f.write_str("it named a session that is not its own, or has ended"),
            Refusal::STATE => f.write_str("it left out a step of the login, or took one back"),
            Refusal(class, detail) => write!(f, "status {class:02x}{detail:02x}"),
        }
    }
}

impl Refusal {
    pub const INITIATOR: Refusal = Refusal(2, 0);
    pub const AUTHENTICATION: Refusal = Refusal(2, 1);
    pub const NOT_FOUND: Refusal = Refusal(2, 3);
    pub const VERSION: Refusal = Refusal(2, 5);
    pub const TOO_MANY: Refusal = Refusal(2, 6);
    pub const MISSING: Refusal = Refusal(2, 7);
    pub const SESSION_TYPE: Refusal = Refusal(2, 9);
    pub const NO_SESSION: Refusal = Refusal(2, 10);
    pub const STATE: Refusal = Refusal(2, 11);
    pub const UNAVAILABLE: Refusal = Refusal(3, 1);
    pub const RESOURCES: Refusal = Refusal(3, 2);
}

/// The requirements of a target for a login.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoginRules {
    pub chap: Option<Credentials>,
    /// The credentials with which the target proves itself.
    pub mutual: Option<Credentials>,
}

/// The targets visible to this peer.
pub trait Targets {
    fn rules(&self, target: &str) -> Result<LoginRules, Refusal>;

    /// Why this peer does not see a target that is there. It is for the server's log alone.
    fn reason(&self, _target: &str) -> Option<String> {
        None
    }
}

/// The result of a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginResult {
    pub initiator: String,
    pub isid: [u8; 6],
    /// `None` for a discovery session.
    pub target: Option<String>,
    /// The requirements that it has met.
    pub rules: LoginRules,
    /// Zero for a new session.
    pub tsih: u16,
    pub cid: u16,
    pub command_number: u32,
    /// Number of the next response.
    pub status_number: u32,
    pub parameters: Parameters,
}

pub enum Next {
    /// Send the waiting data, and continue to read.
    Continue,
    /// The login needs a place in a session; the caller then calls `accept` or `refuse`.
    Join,
    /// Send the waiting data, and close.
    Close,
}

enum Authentication {
    Untried,
    /// CHAP was chosen; the next request must name an algorithm.
    Chosen,
    Challenged(Challenge),
    Passed,
}

pub struct Login {
    pub out: Outbox,
    challenge: [u8; CHALLENGE],
    authentication: Authentication,
    rules: Option<LoginRules>,
    initiator: String,
    target: Option<String>,
    discovery: bool,
    parameters: Parameters,
    text: Vec<u8>,
    exchanges: u32,
    stage: u8,
    declared: bool,
    last: Header,
    status_number: u32,
    operational: bool,
    /// The name used with CHAP, for the report on a failed login.
    user: Option<String>,
    refusal: Option<Refusal>,
    reason: Option<String>,
}

/// A refused login, with the initiator's claims about itself. All of them may be invented.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    pub refusal: Refusal,
    pub initiator: String,
    pub target: Option<String>,
    pub user: Option<String>,
    /// What the answer does not say.
    pub reason: Option<String>,
}

impl Login {
    /// `challenge` must be unpredictable: an initiator has to answer it.
    pub fn new(challenge: [u8; CHALLENGE]) -> Login {
        Login {
            out: Outbox::default(),
            challenge,
            authentication: Authentication::Untried,
            rules: None,
            initiator: String::new(),
            target: None,
            discovery: false,
            parameters: Parameters::default(),
            text: Vec::new(),
            exchanges: 0,
            stage: 0,
            declared: false,
            last: Header::new(opcode::LOGIN, 0),
            status_number: 0,
            operational: false,
            user: None,
            refusal: None,
            reason: None,
        }
    }

    pub fn receive(&mut self, frame: Frame, targets: &dyn Targets) -> Next {
        let first = self.exchanges == 0;
        self.exchanges += 1;
        let header = frame.header;
        if header.opcode() != opcode::LOGIN {
            return Next::Close;
        }
        self.last = header;
        if first {
            // The initiator chooses the first status number.
            self.status_number = header.u32(28);
            self.stage = (header.flags() >> 2) & 3;
        }
        match self.understand(&frame, first, targets) {
            Ok(next) => next,
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn understand(&mut self, frame: &Frame, first: bool, targets: &dyn Targets) -> Result<Next, Refusal> {
        let header = &frame.header;
        let (stage, next_stage) = ((header.flags() >> 2) & 3, header.flags() & 3);
        let (transit, continues) = (header.is_final(), header.flags() & 0x40 != 0);
        if header.u8(3) > 0 {
            return Err(Refusal::VERSION);
        }
        if stage > 1 || stage != self.stage || (transit && (continues || next_stage <= stage || next_stage == 2)) {
            return Err(Refusal::STATE);
        }
        if self.exchanges > EXCHANGES_MAX || self.text.len() + frame.data.len() > TEXT_MAX {
            return Err(Refusal::INITIATOR);
        }
        self.text.extend_from_slice(&frame.data);
        if continues {
            self.respond(false, stage, Pairs::default());
            return Ok(Next::Continue);
        }
        let pairs = text::parse(&std::mem::take(&mut self.text)).ok_or(Refusal::INITIATOR)?;
        let mut out = Pairs::default();
        if first || self.rules.is_none() {
            self.introduce(&pairs, targets, &mut out)?;
        }
        if stage == 0 {
            self.authenticate(&pairs, &mut out)?;
        } else {
            self.pass_without_authentication()?;
        }
        self.operate(&pairs, &mut out, stage)?;
        let passed = matches!(self.authentication, Authentication::Passed);
        if !transit || !passed {
            self.respond(false, stage, out);
            return Ok(Next::Continue);
        }
        if next_stage == FULL_FEATURE {
            self.text = out.0;
            return Ok(Next::Join);
        }
        self.stage = next_stage;
        self.respond(true, stage, out);
        Ok(Next::Continue)
    }

    /// The keys of the first request: the initiator and its target.
    fn introduce(&mut self, pairs: &[(String, String)], targets: &dyn Targets, out: &mut Pairs) -> Result<(), Refusal> {
        let value = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
        let initiator = value("InitiatorName").ok_or(Refusal::MISSING)?;
        // It stands in listings and in kept reservations, beside other words.
        let is_no_name = |c: char| is_unsafe(c) || c.is_whitespace();
        if initiator.is_empty() || initiator.len() > NAME_MAX || initiator.contains(is_no_name) {
            return Err(Refusal::INITIATOR);
        }
        self.initiator = initiator.to_owned();
        self.discovery = match value("SessionType") {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => return Err(Refusal::SESSION_TYPE),
        };
        if self.discovery {
            self.rules = Some(LoginRules::default());
            return Ok(());
        }
        let target = value("TargetName").ok_or(Refusal::MISSING)?.to_ascii_lowercase();
        if target.len() > NAME_MAX {
            return Err(Refusal::NOT_FOUND);
        }
        // Kept before it is looked up: the report on a refused login names it.
        let rules = targets.rules(&target);
        if rules.is_err() {
            self.reason = targets.reason(&target);
        }
        self.target = Some(target);
        self.rules = Some(rules?);
        out.add("TargetPortalGroupTag", PORTAL_GROUP);
        Ok(())
    }

    /// Without the security stage, only initiators pass for which the target has no requirement.
    fn pass_without_authentication(&mut self) -> Result<(), Refusal> {
        if matches!(self.authentication, Authentication::Passed) {
            return Ok(());
        }
        match &self.rules {
            Some(LoginRules { chap: None, .. }) => {
                self.authentication = Authentication::Passed;
                Ok(())
            }
            _ => Err(Refusal::AUTHENTICATION),
        }
    }

    fn authenticate(&mut self, pairs: &[(String, String)], out: &mut Pairs) -> Result<(), Refusal> {
        let value = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
        let rules = self.rules.clone().unwrap_or_default();
        match std::mem::replace(&mut self.authentication, Authentication::Untried) {
            Authentication::Passed => self.authentication = Authentication::Passed,
            Authentication::Untried => {
                let offers = |wanted: &str| {
                    value("AuthMethod").is_some_and(|list| list.split(',').any(|one| one.trim() == wanted))
                };
                if rules.chap.is_some() {
                    if !offers("CHAP") {
                        return Err(Refusal::AUTHENTICATION);
                    }
                    out.add("AuthMethod", "CHAP");
                    self.authentication = Authentication::Chosen;
                } else if value("AuthMethod").is_none() || offers("None") {
                    if value("AuthMethod").is_some() {
                        out.add("AuthMethod", "None");
                    }
                    self.authentication = Authentication::Passed;
                } else {
                    return Err(Refusal::AUTHENTICATION);
                }
            }
            Authentication::Chosen => {
                let offered = value("CHAP_A").ok_or(Refusal::AUTHENTICATION)?;
                let algorithm = Algorithm::choose(offered).ok_or(Refusal::AUTHENTICATION)?;
                let [identifier, ..] = self.challenge;
                out.add("CHAP_A", algorithm.number());
                out.add("CHAP_I", identifier.to_string());
                out.add("CHAP_C", text::hexadecimal(&self.challenge));
                self.authentication =
                    Authentication::Challenged(Challenge { algorithm, identifier, bytes: self.challenge });
            }
            Authentication::Challenged(challenge) => {
                self.user = value("CHAP_N").map(str::to_owned);
                let (Some(expected), Some(user), Some(response)) =
                    (&rules.chap, value("CHAP_N"), value("CHAP_R").and_then(text::binary))
                else {
                    return Err(Refusal::AUTHENTICATION);
                };
                if !challenge.is_answered(expected, user, &response) {
                    return Err(Refusal::AUTHENTICATION);
                }
                if let (Some(identifier), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) {
                    let own = rules.mutual.as_ref().ok_or(Refusal::AUTHENTICATION)?;
                    let answer = text::number(identifier)
                        .zip(text::binary(theirs))
                        .and_then(|(identifier, theirs)| challenge.answer(own, identifier, &theirs))
                        .ok_or(Refusal::AUTHENTICATION)?;
                    out.add("CHAP_N", &own.user);
                    out.add("CHAP_R", text::hexadecimal(&answer));
                }
                self.authentication = Authentication::Passed;
            }
        }
        Ok(())
    }

    fn operate(&mut self, pairs: &[(String, String)], out: &mut Pairs, stage: u8) -> Result<(), Refusal> {
        const SECURITY: [&str; 12] = [
            "InitiatorName",
            "TargetName",
            "SessionType",
            "AuthMethod",
            "CHAP_A",
            "CHAP_I",
            "CHAP_C",
            "CHAP_N",
            "CHAP_R",
            "InitiatorAlias",
            "TargetAlias",
            "TargetPortalGroupTag",
        ];
        let leading = self.last.u16(14) == 0;
        for (key, value) in pairs.iter().filter(|(key, _)| !SECURITY.contains(&key.as_str())) {
            // The standard forbids such keys in the security stage; initiators that send them get
            // an answer all the same.
            self.operational = true;
            self.parameters.negotiate(key, value, leading, out).map_err(|_| Refusal::INITIATOR)?;
        }
        if (stage == 1 || self.operational) && !self.declared {
            self.declared = true;
            out.add("MaxRecvDataSegmentLength", DATA_MAX.to_string());
        }
        Ok(())
    }

    pub fn agreed(&self) -> LoginResult {
        let mut isid = [0; 6];
        isid.iter_mut().zip(self.last.bytes(8, 14)).for_each(|(to, from)| *to = *from);
        LoginResult {
            initiator: self.initiator.clone(),
            isid,
            target: self.target.clone(),
            rules: self.rules.clone().unwrap_or_default(),
            tsih: self.last.u16(14),
            cid: self.last.u16(20),
            command_number: self.last.command_number(),
            status_number: self.status_number.wrapping_add(1),
            parameters: self.parameters.clone(),
        }
    }

    /// The last response, which begins the full feature phase.
    pub fn accept(&mut self, tsih: u16) {
        let stage = self.stage;
        let pairs = Pairs(std::mem::take(&mut self.text));
        self.last.put(14, &tsih.to_be_bytes());
        self.stage = FULL_FEATURE;
        self.respond(true, stage, pairs);
    }

    pub fn refuse(&mut self, refusal: Refusal) -> Next {
        let mut header = self.response(0);
        header.put(36, &[refusal.0, refusal.1]);
        self.refusal = Some(refusal);
        self.out.push(header, &[]);
        Next::Close
    }

    /// The initiator and the reason, if the login was refused.
    pub fn refused(&self) -> Option<Refused> {
        let (initiator, target) = (self.initiator.clone(), self.target.clone());
        let (user, reason) = (self.user.clone(), self.reason.clone());
        self.refusal.map(|refusal| Refused { refusal, initiator, target, user, reason })
    }

    fn respond(&mut self, transit: bool, stage: u8, pairs: Pairs) {
        let flags = stage << 2 | if transit { 0x80 | self.stage } else { 0 };
        let header = self.response(flags);
        self.out.push(header, &[pairs.0.into()]);
        self.status_number = self.status_number.wrapping_add(1);
    }

    fn response(&self, flags: u8) -> Header {
        let mut header = Header::new(opcode::LOGGED_IN, flags);
        header.put(8, self.last.bytes(8, 16));
        header.set_tag(self.last.tag());
        header.put32(24, self.status_number);
        header.put32(28, self.last.command_number());
        header.put32(32, self.last.command_number().wrapping_add(31));
        header
    }
}
