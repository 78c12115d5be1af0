// Package client speaks to one API server: requests with a time limit, credentials that follow
// their files, what a refusal means, discovery, and which cluster it is.
package client
