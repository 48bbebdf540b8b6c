//! What handlers take from a request's head. All that can be wrong with it is told as the API tells errors.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::{header::HOST, request::Parts},
};
use serde::de::DeserializeOwned;

use super::{api::Api, api_error::ApiError, domain::Domain};
use crate::types::Reason;

/// The sandbox that a path names, whatever stands there.
pub(super) struct Id(pub(super) String);

impl FromRequestParts<Arc<Api>> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(head, api).await;
        id.map(|Path(id)| Self(id)).map_err(|_| ApiError::gone("", Reason::Unknown))
    }
}

/// Parameters of a query.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let asked = Query::<T>::from_request_parts(head, api).await;
        asked.map(|Query(asked)| Self(asked)).map_err(|error| ApiError::bad_request(error.body_text()))
    }
}

/// What the caller's SDK is to build sandboxes' names from: they lead where its call came through.
pub(super) struct Names(Option<String>);

impl Names {
    pub(super) fn domain(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromRequestParts<Arc<Api>> for Names {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let over_tls = api.domain.as_ref().filter(|domain| host.is_some_and(|host| domain.is_api(host)));
        let plain = || api.proxy.get().map(|proxy| format!("localhost:{}", proxy.port()));
        Ok(Self(over_tls.map(Domain::authority).or_else(plain)))
    }
}
