// Package fetch sends the HTTP requests of guests to the hosts that a configuration names. It
// resolves names itself, connects to the addresses that it has checked, follows no redirect, and
// holds each host to its rate.
package fetch
