//! Workloads that run at once, each with a load and an objective of its own.

use serde::{Deserialize, Serialize};

use super::{Given, Job, JobCell, LoadPart, WorkloadPart};
use crate::error::LabError;

/// Tenants of a job: each has threads of its own.
const TENANTS_MAX: usize = 64;

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TenantPart {
    pub name: String,
    /// Its target; that of the job where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    #[serde(default)]
    pub workload: WorkloadPart,
    #[serde(default)]
    pub load: LoadPart,
    /// What its accesses are to keep, like `p99=2ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
}

impl Job {
    /// The target of each cell: that of a tenant, or the job's.
    pub fn target_of(&self, number: usize) -> Option<&String> {
        self.tenant.get(number).and_then(|tenant| tenant.on.as_ref()).or(self.on.as_ref())
    }

    /// One cell for each, all of them measured at once and for the same time.
    pub(super) fn tenants(&self) -> Result<Vec<JobCell>, LabError> {
        self.check_tenants()?;
        let mut all = Vec::new();
        for tenant in &self.tenant {
            let alone = Job {
                workload: tenant.workload.clone(),
                load: tenant.load.clone(),
                objective: tenant.objective.clone(),
                tenant: Vec::new(),
                ..self.clone()
            };
            let name = &tenant.name;
            let in_tenant = |error: LabError| LabError::Usage(format!("tenant '{name}': {error}"));
            let Ok([cell]) = <[JobCell; 1]>::try_from(alone.cells().map_err(in_tenant)?) else {
                return Err(LabError::Usage(format!(
                    "tenant '{name}': its values are no lists, since all run at once"
                )));
            };
            all.push(JobCell { axes: vec![("tenant".to_owned(), name.clone())], ..cell });
        }
        let Some(length) = all.iter().map(|cell| cell.setup.timing.least).max() else { return Ok(all) };
        for (cell, tenant) in all.iter_mut().zip(&self.tenant) {
            let timing = &mut cell.setup.timing;
            if tenant.load.profile.is_some() && timing.least != length {
                return Err(LabError::Usage(format!(
                    "tenant '{}': its profile lasts {}, and another tenant {length}: all end together",
                    tenant.name, timing.least
                )));
            }
            (timing.least, timing.most) = (length, length);
        }
        Ok(all)
    }

    fn check_tenants(&self) -> Result<(), LabError> {
        let refuse = |text: String| Err(LabError::Usage(text));
        let names: Vec<&str> = self.tenant.iter().map(|tenant| tenant.name.as_str()).collect();
        if names.len() > TENANTS_MAX {
            return refuse(format!("{} tenants; {TENANTS_MAX} at most", names.len()));
        }
        if let Some((number, name)) =
            names.iter().enumerate().find(|(n, name)| name.is_empty() || names[..*n].contains(name))
        {
            return refuse(format!("tenant {}: '{name}' names none of them alone", number + 1));
        }
        if self.workload != WorkloadPart::default() || self.load != LoadPart::default() || self.objective.is_some() {
            return refuse("tenants have workloads, loads and objectives of their own: leave the job's out".into());
        }
        if self.search.is_some() || self.precondition.is_some() || self.modelled.is_some() || self.recipe.is_some() {
            return refuse("tenants run side by side: leave search, precondition and virtual out".into());
        }
        if self.content.verify {
            return refuse("what one tenant writes another may read: leave content.verify out".into());
        }
        match self.buffered {
            Given::One(_) => Ok(()),
            Given::Many(_) => refuse("tenants run at once: give one value of buffered".into()),
        }
    }
}

#[cfg(test)]
mod tests;
