package host

import (
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// fetchRequest is the request of a guest.
type fetchRequest struct {
	method  string
	url     *url.URL
	headers http.Header
	body    string
}

// Address returns host:port in the form of the configuration.
func (r *fetchRequest) Address() string {
	port := r.url.Port()
	if port == "" {
		port = defaultPort(r.url.Scheme)
	}
	return net.JoinHostPort(strings.ToLower(r.url.Hostname()), port)
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

// ownHeaders are headers that a guest may not set, because they change the target or the length of
// a request.
func ownHeaders() []string {
	return []string{
		"Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Expect", "Accept-Encoding",
		"Proxy-Authorization", "Proxy-Authenticate", "Proxy-Connection",
	}
}

// methods are the allowed methods. CONNECT and TRACE are not allowed because they concern
// connections.
func methods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
}

// parse parses {"method", "url", "headers", "body" or "bodyBase64"}. Only the URL is required. A
// status below 0 is the mistake.
func parse(text string) (*fetchRequest, int32) {
	if rawjson.Check(text) != nil {
		return nil, abi.StatusInvalid
	}
	request := rawjson.Trim(text)
	if request.Kind() != rawjson.Object {
		return nil, abi.StatusInvalid
	}
	r := &fetchRequest{method: http.MethodGet, headers: make(http.Header)}
	for key, value := range request.Fields() {
		if err := r.member(key, value); err != nil {
			return nil, abi.StatusInvalid
		}
	}
	switch {
	case r.url == nil, request.Get("body") != "" && request.Get("bodyBase64") != "":
		return nil, abi.StatusInvalid
	case len(r.body) > maxBody:
		return nil, abi.StatusQuota
	case slices.ContainsFunc(ownHeaders(), func(name string) bool { return r.headers[name] != nil }):
		return nil, abi.StatusDenied
	}
	return r, abi.StatusOK
}

var errMember = errors.New("a member of the request is unknown or invalid")

func (r *fetchRequest) member(key string, value rawjson.Value) (err error) {
	if key == "headers" {
		return r.header(value)
	}
	if value.Kind() != rawjson.String {
		return errMember
	}
	s := strings.Clone(value.Str())
	switch key {
	case "method":
		if r.method = s; !slices.Contains(methods(), s) {
			return errMember
		}
	case "url":
		r.url, err = parseURL(s)
	case "body":
		r.body = s
	case "bodyBase64":
		var body []byte
		body, err = base64.StdEncoding.DecodeString(s)
		r.body = string(body)
	default:
		return errMember
	}
	return err
}

func (r *fetchRequest) header(all rawjson.Value) error {
	if all.Kind() != rawjson.Object {
		return errMember
	}
	for name, value := range all.Fields() {
		text := value.Str()
		if value.Kind() != rawjson.String || !isToken(name) || strings.ContainsFunc(text, unicode.IsControl) {
			return errMember
		}
		r.headers.Add(strings.Clone(name), strings.Clone(text))
	}
	return nil
}

// parseURL accepts only URLs with an unambiguous host.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return nil, errMember
	}
	u.Fragment = ""
	return u, nil
}
