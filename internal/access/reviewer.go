package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/pkg/authz"
)

// The times for which answers are kept, like those of kube-rbac-proxy. A stream does not use them,
// see [Caller.Again].
const (
	knownToken   = 2 * time.Minute
	unknownToken = 10 * time.Second
	granted      = 5 * time.Minute
	refused      = 30 * time.Second
	// acceptedToken is the time for which requests for an accepted token have a rate of their own.
	acceptedToken = 24 * time.Hour
)

// The bounds of the memory and of the requests to the API server.
const (
	maxTokens  = 1024 // accepted ones, and as many refused ones
	maxRights  = 4096
	atOnce     = 8 // requests in progress
	timeout    = 10 * time.Second
	maxAnswer  = 1 << 20
	maxSenders = 1024 // with a rate of their own
	// requests for unknown tokens: of one address, and of all; as many for accepted ones
	tokensPerSecond, tokensAtOnce       = 5, 20
	allTokensPerSecond, allTokensAtOnce = 20, 100
	// requests for the rights of one user; more wait
	rightsPerSecond, rightsAtOnce = 50, 200
)

// Config configures a Reviewer.
type Config struct {
	URL    string       // of the API server
	Client *http.Client // with the credentials of the router
	// ClientCAs returns the authorities of client certificates; nil: there are none
	ClientCAs func() *x509.CertPool
	Now       func() time.Time
}

// Reviewer asks the API server who sends a request, and for the rights of users. It is safe for
// concurrent use.
type Reviewer struct {
	cfg    Config
	tokens *memory[User]
	rights *memory[struct{}]
	slots  chan struct{} // bounds requests in progress
	pace   *paces
	salt   [32]byte // the cache has hashes of tokens that are of no use elsewhere
}

// New makes a Reviewer.
func New(cfg Config) *Reviewer {
	r := &Reviewer{
		cfg: cfg, slots: make(chan struct{}, atOnce), pace: newPaces(cfg.Now),
		tokens: newMemory[User](cfg.Now, maxTokens, knownToken, unknownToken),
		rights: newMemory[struct{}](cfg.Now, maxRights, granted, refused),
	}
	_, _ = rand.Read(r.salt[:]) // never fails
	return r
}

// Identify returns the sender of a request: the user of the bearer token if there is one, or else
// of the client certificate. The error is an [Error].
func (r *Reviewer) Identify(request *http.Request) (*Caller, error) {
	c := &Caller{reviewer: r}
	if header := request.Header.Get("Authorization"); header != "" {
		token, ok := bearer(header)
		if !ok {
			return nil, failf(http.StatusUnauthorized, "the header Authorization must be: Bearer TOKEN")
		}
		sender := addressOf(request.RemoteAddr)
		c.identify = func(ctx context.Context, fresh bool) (User, error) { return r.userOf(ctx, token, sender, fresh) }
	} else if certs := certificates(request.TLS); len(certs) > 0 {
		c.identify = func(context.Context, bool) (User, error) { return r.certified(certs) }
	} else {
		return nil, failf(http.StatusUnauthorized, "this API needs a token of the cluster (Authorization: Bearer TOKEN) or a client certificate")
	}
	var err error
	c.User, err = c.identify(request.Context(), false)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// bearer returns the token of a header Authorization.
func bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsAny(token, " \t")
}

// addressOf returns the address of a client without its port. All processes behind a socket are one
// client.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return ""
	}
	return host
}

func certificates(state *tls.ConnectionState) []*x509.Certificate {
	if state == nil {
		return nil
	}
	return state.PeerCertificates
}

// certified returns the user of a client certificate, in the way of the API server: its common name
// is the user, and its organizations are the groups.
func (r *Reviewer) certified(certs []*x509.Certificate) (User, error) {
	var roots *x509.CertPool
	if r.cfg.ClientCAs != nil {
		roots = r.cfg.ClientCAs()
	}
	if roots == nil {
		return User{}, failf(http.StatusUnauthorized, "client certificates are not accepted: use a token")
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	leaf := certs[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: r.cfg.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return User{}, failf(http.StatusUnauthorized, "the client certificate is not accepted: it has expired, is not for clients, or is not signed by an authority of listen.tls.clientCA")
	}
	if leaf.Subject.CommonName == "" {
		return User{}, failf(http.StatusUnauthorized, "the client certificate has no common name, which is the user")
	}
	return User{Name: leaf.Subject.CommonName, Groups: append(leaf.Subject.Organization[:len(leaf.Subject.Organization):len(leaf.Subject.Organization)], "system:authenticated")}, nil
}

// userOf returns the user of a token.
func (r *Reviewer) userOf(ctx context.Context, token, sender string, fresh bool) (User, error) {
	key := r.hash("token", token)
	user, ok, err := r.tokens.get(ctx, key, fresh, func(ctx context.Context) (User, bool, error) {
		if !fresh && !r.pace.mayReview(key, sender, r.cfg.Now()) {
			return User{}, false, failf(http.StatusTooManyRequests, "too many unknown tokens: try again in some seconds")
		}
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		if err := r.post(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", &review); err != nil {
			return User{}, false, err
		}
		of := review.Status.User
		user := User{Name: of.Username, UID: of.UID, Groups: of.Groups, Extra: make(map[string][]string)}
		for name, values := range of.Extra {
			user.Extra[name] = values
		}
		known := review.Status.Authenticated && of.Username != ""
		r.pace.reviewed(key, known)
		return user, known, nil
	})
	if err == nil && !ok {
		err = failf(http.StatusUnauthorized, "the token is not accepted by the cluster: it is unknown, has expired, or is for another audience")
	}
	return user, err
}

// allowed reports whether a user has a right.
func (r *Reviewer) allowed(ctx context.Context, user User, right authz.Right, fresh bool) (bool, error) {
	key := r.hash("right", user, right.Verb, right.Group, right.Resource, right.Namespace, right.Name, right.Path)
	_, ok, err := r.rights.get(ctx, key, fresh, func(ctx context.Context) (none struct{}, ok bool, err error) {
		if err := r.pace.ask(ctx, user.Name); err != nil {
			return none, false, failf(http.StatusTooManyRequests, "too many requests for the rights of user %q: try again in some seconds", shortened(user.Name))
		}
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Name, UID: user.UID, Groups: user.Groups, Extra: make(map[string]authorizationv1.ExtraValue),
		}}
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
		for name, values := range user.Extra {
			review.Spec.Extra[name] = values
		}
		review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes = right.Attributes()
		if err := r.post(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review); err != nil {
			return none, false, err
		}
		return none, review.Status.Allowed && !review.Status.Denied, nil
	})
	return ok, err
}

// hash returns the key of a question in the memory.
func (r *Reviewer) hash(parts ...any) string {
	hash := sha256.New()
	// %q, so that different questions have different texts
	fmt.Fprintf(hash, "%x %q", r.salt, parts)
	return string(hash.Sum(nil))
}
