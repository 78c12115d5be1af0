// Package fetch sends the HTTP requests of guests to granted hosts. It resolves names itself,
// connects to the addresses that it has checked, follows no redirects, and limits the rate per
// host.
package fetch
