package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// cluster is an API server that knows the user of each token token-USER, and the rights of each
// user.
type cluster struct {
	mu       sync.Mutex
	status   int                 // 0: the right one
	rights   map[string][]string // by user
	gone     []string            // tokens that have expired
	asked    map[string]int      // by kind
	last     authorizationv1.SubjectAccessReviewSpec
	hold     chan struct{} // nil: answer at once
	holding  chan struct{}
	clock    *timer.Fake
	reviewer *access.Reviewer
}

func newCluster(t *testing.T, cas func() *x509.CertPool) *cluster {
	t.Helper()
	c := &cluster{rights: make(map[string][]string), asked: make(map[string]int), clock: timer.NewFake(time.Now()), holding: make(chan struct{}, 100)}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	c.reviewer = access.New(access.Config{URL: server.URL + "/", Client: server.Client(), ClientCAs: cas, Now: c.clock.Now})
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		c.holding <- struct{}{}
		<-hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	var answer any
	switch r.Method + " " + r.URL.Path {
	case "POST /apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review) // an empty review fails the checks below
		c.asked[review.Kind]++
		user, ok := strings.CutPrefix(review.Spec.Token, "token-")
		if review.Status.Authenticated = ok && !slices.Contains(c.gone, review.Spec.Token); review.Status.Authenticated {
			review.Status.User = authenticationv1.UserInfo{Username: user, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"e": {"v"}}}
		}
		answer = review
	case "POST /apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review) // an empty review fails the checks below
		c.asked[review.Kind]++
		c.last = review.Spec
		var asked authz.Right
		if a := review.Spec.ResourceAttributes; a != nil {
			asked = authz.Right{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name}
		} else {
			asked = authz.Right{Verb: review.Spec.NonResourceAttributes.Verb, Path: review.Spec.NonResourceAttributes.Path}
		}
		review.Status.Allowed = slices.Contains(c.rights[review.Spec.User], asked.String())
		answer = review
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer) // the client then fails
}

// change changes the cluster.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[kind]
}

func requestOf(header, address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func (c *cluster) identify(t *testing.T, token string) *access.Caller {
	t.Helper()
	caller, err := c.reviewer.Identify(requestOf("Bearer "+token, "10.0.0.1:1"))
	must.Succeed(t, err)
	return caller
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*access.Error](err); ok {
		return e.Status
	}
	return 0
}

var listPods = authz.Right{Verb: "list", Resource: "pods", Namespace: "ops"}

func TestIdentify(t *testing.T) {
	c := newCluster(t, nil)
	for header, want := range map[string]string{
		"":                      "401 this API needs a token",
		"Bearer token-ann":      "",
		"bearer  token-ann":     "",
		"Bearer":                "401 the header Authorization must be: Bearer TOKEN",
		"Bearer ":               "401 the header Authorization must be: Bearer TOKEN",
		"Bearer token-ann more": "401 the header Authorization must be: Bearer TOKEN",
		"Basic dG9rZW4=":        "401 the header Authorization must be: Bearer TOKEN",
		"Bearer s3cret":         "401 the token is not accepted by the cluster",
	} {
		caller, err := c.reviewer.Identify(requestOf(header, "10.0.0.1:1"))
		if want == "" {
			must.Report(t, err)
			if err == nil && caller.String() != "ann of g" {
				t.Errorf("%q: got %s", header, caller)
			}
			continue
		}
		if got := fmt.Sprint(statusOf(err), " ", err); !strings.HasPrefix(got, want) || strings.Contains(got, "s3cret") {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}

// TestCheck shows that rights are asked for with the whole user, that the answers are kept for a
// time, and that a denial names the right.
func TestCheck(t *testing.T) {
	// Guarantee: api-access
	c := newCluster(t, nil)
	ctx := access.With(t.Context(), c.identify(t, "token-ann"))
	err := access.Check(ctx, listPods)
	if got := fmt.Sprint(statusOf(err), " ", err); got != `403 user "ann" may not list pods in namespace "ops"` {
		t.Error(got)
	}
	if c.last.User != "ann" || c.last.UID != "u" || !slices.Equal(c.last.Groups, []string{"g"}) || c.last.Extra["e"][0] != "v" {
		t.Errorf("the API server was asked for %+v", c.last)
	}
	c.change(func() { c.rights["ann"] = []string{listPods.String(), "get /metrics"} })
	if statusOf(access.Check(ctx, listPods)) != http.StatusForbidden {
		t.Error("the denial was not kept")
	}
	c.clock.Advance(c.clock.Now().Add(31 * time.Second))
	must.Report(t, access.Check(ctx, listPods, authz.Right{Verb: "get", Path: "/metrics"}))
	c.change(func() { delete(c.rights, "ann") })
	asked := c.count("SubjectAccessReview")
	c.clock.Advance(c.clock.Now().Add(4 * time.Minute))
	must.Report(t, access.Check(ctx, listPods))
	if got := c.count("SubjectAccessReview"); got != asked {
		t.Errorf("asked %d times more", got-asked)
	}
	c.clock.Advance(c.clock.Now().Add(2 * time.Minute))
	if statusOf(access.Check(ctx, listPods)) != http.StatusForbidden {
		t.Error("the permission was kept for too long")
	}
	must.Report(t, access.Check(t.Context(), listPods)) // the router itself
}

// TestAgain shows that a permission ends, whatever is kept, when the right is withdrawn or the
// token expires.
func TestAgain(t *testing.T) {
	// Guarantee: api-access
	c := newCluster(t, nil)
	c.rights["ann"] = []string{listPods.String()}
	caller := c.identify(t, "token-ann")
	must.Succeed(t, access.Check(access.With(t.Context(), caller), listPods))
	must.Succeed(t, caller.Again(t.Context()))
	c.change(func() { c.rights["ann"] = nil })
	if err := caller.Again(t.Context()); statusOf(err) != http.StatusForbidden {
		t.Error(err)
	}
	c.change(func() { c.rights["ann"], c.gone = []string{listPods.String()}, []string{"token-ann"} })
	if err := caller.Again(t.Context()); statusOf(err) != http.StatusUnauthorized {
		t.Error(err)
	}
	if _, err := c.reviewer.Identify(requestOf("Bearer token-ann", "10.0.0.1:1")); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("the cache still has the token: %v", err)
	}
}

// TestNoAnswer shows that nothing is permitted without an answer of the API server, and that this
// is not kept.
func TestNoAnswer(t *testing.T) {
	// Guarantee: api-access
	c := newCluster(t, nil)
	caller := c.identify(t, "token-ann")
	c.rights["ann"] = []string{listPods.String()}
	for status, want := range map[int]string{
		http.StatusForbidden:           "the router may not create subjectaccessreviews: give it the rights that router rbac prints",
		http.StatusInternalServerError: "it answers 500",
		http.StatusOK:                  "its answer is no review",
	} {
		c.change(func() { c.status = status })
		err := access.Check(access.With(t.Context(), caller), listPods)
		if statusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %s", status, err, want)
		}
		if _, err := c.reviewer.Identify(requestOf("Bearer token-bob", "10.0.0.1:1")); statusOf(err) != http.StatusServiceUnavailable {
			t.Errorf("%d: %v", status, err)
		}
		if has, err := access.Has(access.With(t.Context(), caller), listPods); has || err == nil {
			t.Errorf("%d: %t, %v", status, has, err)
		}
		if err := caller.Again(t.Context()); statusOf(err) != http.StatusServiceUnavailable {
			t.Errorf("%d: %v", status, err)
		}
	}
	c.change(func() { c.status = 0 })
	must.Report(t, access.Check(access.With(t.Context(), caller), listPods))
}

// TestFlood shows that requests with one token are one question, that an address may ask for a few
// unknown tokens only, and that the others then are still served.
func TestFlood(t *testing.T) {
	// Guarantee: api-access
	c := newCluster(t, nil)
	c.hold = make(chan struct{})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { c.identify(t, "token-ann") })
	}
	<-c.holding
	close(c.hold)
	c.change(func() { c.hold = nil })
	all.Wait()
	if n := c.count("TokenReview"); n != 1 {
		t.Errorf("%d questions for one token", n)
	}
	before, busy := c.count("TokenReview"), 0
	for i := range 100 {
		_, err := c.reviewer.Identify(requestOf(fmt.Sprintf("Bearer wrong-%d", i), "10.0.0.2:1"))
		if statusOf(err) == http.StatusTooManyRequests {
			busy++
		}
	}
	if n := c.count("TokenReview") - before; n != 20 || busy != 80 {
		t.Errorf("%d questions for unknown tokens, %d were refused", n, busy)
	}
	c.identify(t, "token-ann")
	c.identify(t, "token-bob") // of another address
}

// TestFloodOfAll shows that users who were accepted before still are while many addresses use up
// the requests for unknown tokens, also from an address that is busy itself; and that a token which
// is not accepted any more has no such advantage.
func TestFloodOfAll(t *testing.T) {
	// Guarantee: api-access
	c := newCluster(t, nil)
	c.identify(t, "token-ann")
	c.identify(t, "token-old")
	c.change(func() { c.gone = []string{"token-old"} })
	flood := func() {
		for i := range 1000 {
			_, _ = c.reviewer.Identify(requestOf(fmt.Sprintf("Bearer wrong-%d", i), fmt.Sprintf("10.0.1.%d:1", i%10))) // refused
		}
	}
	c.clock.Advance(c.clock.Now().Add(5 * time.Minute)) // the cache has forgotten the tokens
	flood()
	from := "10.0.1.1:1"
	if _, err := c.reviewer.Identify(requestOf("Bearer token-ann", from)); err != nil {
		t.Errorf("a user who was accepted before: %v", err)
	}
	if _, err := c.reviewer.Identify(requestOf("Bearer token-bob", from)); statusOf(err) != http.StatusTooManyRequests {
		t.Errorf("a new user: %v", err)
	}
	if _, err := c.reviewer.Identify(requestOf("Bearer token-old", from)); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("a token that has expired: %v", err)
	}
	c.clock.Advance(c.clock.Now().Add(unknownTokens))
	flood()
	if _, err := c.reviewer.Identify(requestOf("Bearer token-old", from)); statusOf(err) != http.StatusTooManyRequests {
		t.Errorf("a token that has expired, the second time: %v", err)
	}
}

// unknownTokens is longer than the time for which an unknown token is kept.
const unknownTokens = time.Minute

// TestCertificates shows which client certificates are accepted, and as whom.
func TestCertificates(t *testing.T) {
	// Guarantee: api-access
	ours, other := newAuthority(t), newAuthority(t)
	pool := ours.pool()
	c := newCluster(t, func() *x509.CertPool { return pool })
	now := c.clock.Now()
	for name, tt := range map[string]struct {
		by    *authority
		leaf  x509.Certificate
		want  string
		group string
	}{
		"accepted":       {ours, x509.Certificate{Subject: pkix.Name{CommonName: "ann", Organization: []string{"team"}}}, "", "team,system:authenticated"},
		"another signer": {other, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}, "is not accepted", ""},
		"expired":        {ours, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, NotAfter: now.Add(-time.Minute)}, "is not accepted", ""},
		"of a server":    {ours, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "is not accepted", ""},
		"nobody":         {ours, x509.Certificate{Subject: pkix.Name{Organization: []string{"team"}}}, "has no common name", ""},
	} {
		r := requestOf("", "10.0.0.1:1")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{tt.by.sign(t, &tt.leaf, now)}}
		caller, err := c.reviewer.Identify(r)
		if tt.want == "" {
			must.Succeed(t, err)
			if caller.Name != "ann" || strings.Join(caller.Groups, ",") != tt.group {
				t.Errorf("%s: %+v", name, caller.User)
			}
			pool = other.pool() // the authority is replaced
			if err := caller.Again(t.Context()); statusOf(err) != http.StatusUnauthorized {
				t.Errorf("%s: %v", name, err)
			}
			pool = ours.pool()
			continue
		}
		if statusOf(err) != http.StatusUnauthorized || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	without := newCluster(t, nil)
	r := requestOf("", "10.0.0.1:1")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ours.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}, now)}}
	if _, err := without.reviewer.Identify(r); statusOf(err) != http.StatusUnauthorized {
		t.Error(err)
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	a := &authority{key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert = a.issue(t, a.cert)
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) issue(t *testing.T, leaf *x509.Certificate) *x509.Certificate {
	t.Helper()
	text, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &a.key.PublicKey, a.key)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(text)
	must.Succeed(t, err)
	return cert
}

func (a *authority) sign(t *testing.T, leaf *x509.Certificate, now time.Time) *x509.Certificate {
	t.Helper()
	leaf.SerialNumber, leaf.NotBefore = big.NewInt(2), now.Add(-time.Hour)
	if leaf.NotAfter.IsZero() {
		leaf.NotAfter = now.Add(time.Hour)
	}
	if leaf.ExtKeyUsage == nil {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return a.issue(t, leaf)
}

// TestUserString shows that a user is bounded in the log.
func TestUserString(t *testing.T) {
	long := strings.Repeat("ü", 500)
	u := access.User{Name: long, Groups: []string{"a", "b", "c", "d", long, "f", "g"}}
	if got := u.String(); len(got) > 300 || !strings.HasSuffix(got, ", and 2 more") || !strings.Contains(got, " of a, b, c, d, ü") {
		t.Error(got)
	}
}

// FuzzHeader shows that no header makes a request permitted that the cluster does not know.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"", "Bearer", "Bearer x", "bearer  x y", "Basic x", "Bearer\tx", "Bearer \x00"} {
		f.Add(seed)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}")) // not authenticated
	}))
	f.Cleanup(server.Close)
	f.Cleanup(server.Client().CloseIdleConnections)
	reviewer := access.New(access.Config{URL: server.URL, Client: server.Client(), Now: time.Now})
	f.Fuzz(func(t *testing.T, header string) {
		r := requestOf("", "10.0.0.1:1").WithContext(context.WithoutCancel(t.Context()))
		r.Header["Authorization"] = []string{header}
		if caller, err := reviewer.Identify(r); err == nil || caller != nil {
			t.Errorf("%q is %v", header, caller)
		}
	})
}
