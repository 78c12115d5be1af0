// Command keyless verifies the signature of a module in a registry that was made without a key
// (cosign sign, with an identity of OpenID Connect), and writes the digest of the module into
// plugins.lock. The router reads that file, so it needs no code of Sigstore.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
)

const usage = `keyless verifies a keyless signature of a module in a registry, and pins the tag of the module in plugins.lock.

Usage:
  keyless -identity NAME -issuer URL [-lock plugins.lock] [FLAGS] oci://HOST/REPOSITORY:TAG

The signature is one of cosign sign, in the format of bundles (the default since cosign 3) or at the tag sha256-….sig.
The root of trust is the public instance of Sigstore, fetched by TUF, or the file -trusted-root.

Flags:
`

// The exit codes are those of router.
const (
	codeFailed = 1
	codeUsage  = 2
)

// mistake is an error of the command line.
type mistake struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(mistake)):
		fmt.Fprintln(os.Stderr, "keyless:", err)
		os.Exit(codeUsage)
	case err != nil:
		fmt.Fprintln(os.Stderr, "keyless:", err)
		os.Exit(codeFailed)
	}
}

// command has the flags.
type command struct {
	signer  signer
	root    string
	lock    string
	options oci.Options
}

func run(ctx context.Context, args []string, out, help io.Writer) error {
	var c command
	f := flag.NewFlagSet("keyless", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.signer.identity, "identity", "", "`NAME` of the signer: an address of e-mail, or the URL of a workflow")
	f.StringVar(&c.signer.pattern, "identity-regexp", "", "`EXPRESSION` that the whole name of the signer matches, in place of -identity")
	f.StringVar(&c.signer.issuer, "issuer", "", "`URL` of the issuer that confirmed the identity")
	f.StringVar(&c.lock, "lock", "", "`FILE` to write the digest of the tag into: plugins.lock beside the configuration")
	f.StringVar(&c.root, "trusted-root", "", "`FILE` with the root of trust, trusted_root.json (default: the public instance of Sigstore)")
	f.StringVar(&c.options.Credentials, "credentials", "", "`FILE` with credentials, a Docker configuration (default: the one of the user)")
	f.BoolVar(&c.options.PlainHTTP, "plain-http", false, "connect without TLS, also to another machine")
	f.DurationVar(&c.options.Timeout, "timeout", time.Minute, "`DURATION` of a request at most")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(help)
		_, _ = io.WriteString(help, usage)
		f.PrintDefaults()
		return err
	}
	if err != nil {
		return mistake{err}
	}
	if f.NArg() != 1 {
		return mistake{errors.New("name one reference after the flags, as oci://registry.example.com/team/dns:1.2")}
	}
	return c.run(ctx, f.Arg(0), out)
}

func (c *command) run(ctx context.Context, text string, out io.Writer) error {
	ref, err := oci.Parse(text)
	if err != nil {
		return mistake{fmt.Errorf("%s: %w", text, err)}
	}
	if ref.Tag == "" && c.lock != "" {
		return mistake{fmt.Errorf("%s has no tag: -lock pins a tag", ref)}
	}
	policy, err := c.signer.policy()
	if err != nil {
		return mistake{err}
	}
	roots, err := trustedRoot(c.root)
	if err != nil {
		return err
	}
	c.options.RunHelpers = true
	repo, err := oci.Connect(ref, oci.Store{}, c.options)
	if err != nil {
		return err
	}
	defer repo.Close()
	digest := ref.Digest
	if digest == "" {
		if digest, err = repo.Resolve(ctx, ref.Tagged()); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
	}
	by, err := verified(ctx, repo, digest, roots, policy)
	if err != nil {
		return fmt.Errorf("%s: %w", ref.WithDigest(digest), err)
	}
	if c.lock != "" {
		if err := lockfile.Lock(c.lock, ref, digest, by.String()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "module     %s\nidentity   %s\nissuer     %s\n", ref.WithDigest(digest), by.identity, by.issuer)
	return err
}
