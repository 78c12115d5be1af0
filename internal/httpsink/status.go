package httpsink

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Codes are the HTTP statuses whose meaning the configuration of a sink sets.
type Codes struct {
	Unavailable []int
	Rejected    []int
}

// Check returns the mistakes in the keys unavailable and rejected below n.
func (c *Codes) Check(n config.Node) (problems config.Problems) {
	for _, list := range []struct {
		key   string
		codes []int
	}{{"unavailable", c.Unavailable}, {"rejected", c.Rejected}} {
		for _, code := range list.codes {
			if code < 300 || code > 599 {
				problems = append(problems, n.At(list.key).Problemf("has %d: write statuses of HTTP from 300 to 599", code))
			}
		}
	}
	for _, code := range c.Rejected {
		if slices.Contains(c.Unavailable, code) {
			problems = append(problems, n.At("rejected").Problemf("has %d, as unavailable has: remove it from one of the two", code))
		}
	}
	return problems
}

// IsUnavailable reports whether a status means that the receiver is unavailable: by the
// configuration, otherwise by byDefault.
func (c *Codes) IsUnavailable(status int, byDefault bool) bool {
	return slices.Contains(c.Unavailable, status) || byDefault && !slices.Contains(c.Rejected, status)
}

// IsTemporary reports whether a status means by default that the receiver, and not the event, is
// the reason: a failed authentication, or a request that was not processed.
func IsTemporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return isAuthentication(status)
}

// isAuthentication reports whether a receiver or proxy does not accept the credentials of the sink.
// They concern the router and not an event: a new token helps all events.
func isAuthentication(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired
}

// Unauthenticated is the remedy in the error of a failed authentication.
const Unauthenticated = ": authentication failed, check the credentials of the sink"

// Answered returns the text about a status. It names a failed authentication.
func Answered(status int) string {
	text := fmt.Sprintf("answered %d %s", status, http.StatusText(status))
	if isAuthentication(status) {
		text += Unauthenticated
	}
	return text
}

// Redirected returns the hint about a redirect, which no client of the router follows, because it
// would send the credentials there. It names the scheme and the host of the target, and nothing
// else of the response. Empty: it is no redirect.
func Redirected(resp *http.Response) string {
	if resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return ""
	}
	const hint = "redirects are not followed; if this is a login page, authenticate at the proxy before the receiver, else configure the target"
	to, err := resp.Location()
	if err != nil || len(to.Host) > 253 || !isHost.MatchString(to.Host) {
		return ": " + hint
	}
	return fmt.Sprintf(", to %s://%s: %s", to.Scheme, to.Host, hint)
}

var isHost = regexp.MustCompile(`^[-.:\[\]0-9A-Za-z_]+$`)
