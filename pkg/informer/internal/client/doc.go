// Package client speaks to one API server: requests with a time limit, credentials that follow
// their files, classes of errors, discovery, and the identity of the cluster.
package client
