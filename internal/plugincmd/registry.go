package plugincmd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
)

// longest is the maximum size of a module of the commands, that of limits.module.
const longest = 256 << 20

// connection has the flags of the commands that talk to a registry.
type connection struct {
	store   string
	options oci.Options
}

func (c *connection) flags(f *cli.Flags) {
	f.StringVar(&c.store, "store", "", "`FOLDER` the folder of fetched modules: cache/modules in the state.dir of a router (default: the one of the user)")
	f.StringVar(&c.options.Credentials, "credentials", "", "`FILE` a Docker configuration (default: the one of the user)")
	f.BoolVar(&c.options.PlainHTTP, "plain-http", false, "connect without TLS, also to another machine")
	f.DurationVar(&c.options.Timeout, "timeout", time.Minute, "`DURATION` the timeout of a manifest, and of a layer")
}

// open connects to the repository of a reference. The user of a command trusts the helpers of the
// own Docker configuration.
func (c *connection) open(text string) (oci.Ref, *oci.Repository, error) {
	ref, err := oci.Parse(text)
	if err != nil {
		return ref, nil, cli.Mistakef("%s: %v", text, err)
	}
	c.options.RunHelpers = true
	dir := c.store
	if dir == "" {
		dir = oci.UserStore()
	}
	repo, err := oci.Connect(ref, oci.Store{Dir: dir}, c.options)
	return ref, repo, cli.Invalid(err)
}

// fetch returns the module of a reference, and its digest.
func (c *connection) fetch(ctx context.Context, text string) (digest string, m oci.Module, err error) {
	ref, repo, err := c.open(text)
	if err != nil {
		return "", m, err
	}
	defer repo.Close()
	if digest = ref.Digest; digest == "" {
		if digest, err = repo.Resolve(ctx, ref.Tagged()); err != nil {
			return "", m, fmt.Errorf("%s: %w", ref, err)
		}
	}
	if m, err = repo.Module(ctx, digest, longest); err != nil {
		return "", m, fmt.Errorf("%s: %w", ref, err)
	}
	if repo.Unkept != nil {
		return "", m, fmt.Errorf("the module cannot be kept: %w", fileerr.Explain(repo.Unkept))
	}
	return digest, m, nil
}

// pushCommand uploads a module.
func pushCommand() cli.Command {
	return cli.Command{
		Name:    "push",
		Args:    "FILE oci://HOST/REPOSITORY:TAG",
		Summary: "Upload a module to a registry",
		Description: `
The artifact has the layout of the CNCF for WebAssembly. It has no date: the same module with the same annotations has the
same digest. The command prints the reference for the key module of a handler. cosign sign -key signs it.`,
		Examples: []cli.Example{
			{Line: "router plugin push dns.wasm oci://registry.example.com/team/dns:1.2", Text: "upload a module"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &connection{}
			var notes []string
			c.flags(f)
			f.StringsVar(&notes, "annotation", "`KEY=VALUE` an annotation of the artifact, as org.opencontainers.image.version=1.2")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if len(args) != 2 {
					return cli.Mistakef("name a module and a reference, as in router plugin push dns.wasm oci://registry.example.com/team/dns:1.2")
				}
				annotations := make(map[string]string)
				for _, note := range notes {
					key, value, ok := strings.Cut(note, "=")
					if !ok || key == "" {
						return cli.Mistakef("-annotation %s: write KEY=VALUE", note)
					}
					annotations[key] = value
				}
				return c.push(ctx, s, args[0], args[1], annotations)
			}
		},
	}
}

func (c *connection) push(ctx context.Context, s cli.Streams, file, to string, annotations map[string]string) error {
	text, err := cli.ReadFile(s, file)
	if err != nil {
		return cli.Invalid(err)
	}
	if _, err := sectionsOf(text); err != nil {
		return cli.Invalid(fmt.Errorf("%s: %w", file, err))
	}
	ref, repo, err := c.open(to)
	if err != nil {
		return err
	}
	defer repo.Close()
	if ref.Digest != "" {
		return cli.Mistakef("%s: leave out the digest: the registry computes it", ref)
	}
	digest, err := repo.Push(ctx, text, annotations)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	cli.Printf(s.Out, "%s\n", ref.WithDigest(digest))
	return nil
}

// pullCommand fetches a module.
func pullCommand() cli.Command {
	return cli.Command{
		Name:    "pull",
		Args:    "oci://HOST/REPOSITORY@DIGEST",
		Summary: "Fetch a module of a registry, for later use without the registry",
		Description: `
The module is kept by its digest in the folder of the user, or in -store, where router check, test and run find it. The
command prints the reference with the digest.`,
		Examples: []cli.Example{
			{Line: "router plugin pull oci://registry.example.com/team/dns:1.2", Text: "fetch a module, and print its digest"},
			{Line: "router plugin pull -o dns.wasm oci://registry.example.com/team/dns:1.2", Text: "write it into a file, too"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &connection{}
			var file string
			c.flags(f)
			f.StringVar(&file, "o", "", "`FILE` a file for the module; it must not exist")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if len(args) != 1 {
					return cli.Mistakef("name a reference, as in router plugin pull oci://registry.example.com/team/dns:1.2")
				}
				digest, m, err := c.fetch(ctx, args[0])
				if err != nil {
					return err
				}
				if file != "" {
					if err := writeNew(file, m.Bytes); err != nil {
						return cli.Invalid(err)
					}
				}
				ref, err := oci.Parse(args[0])
				cli.Printf(s.Out, "%s\n", ref.WithDigest(digest))
				return err
			}
		},
	}
}

// writeNew writes a file that does not exist yet.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a module is no secret
	if err == nil {
		_, err = f.Write(content)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	return fileerr.Explain(err)
}

// verifyCommand checks the signature of a module.
func verifyCommand() cli.Command {
	return cli.Command{
		Name:    "verify",
		Args:    "oci://HOST/REPOSITORY@DIGEST",
		Summary: "Check the cosign signature of a module by a public key",
		Description: `
It checks as the key verify of a handler does: the signature must be of the digest and for the repository. With -lock it
writes the digest of the tag into the file, beside the configuration, which then needs no digest and no key. Signatures
without a key (keyless) are checked by the program keyless of the repository, which writes the same file.`,
		Examples: []cli.Example{
			{Line: "router plugin verify -key cosign.pub oci://registry.example.com/team/dns:1.2", Text: "check a module"},
			{Line: "router plugin verify -key cosign.pub -lock plugins.lock oci://registry.example.com/team/dns:1.2", Text: "pin its tag, too"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &connection{}
			v := verification{connection: c}
			c.flags(f)
			f.StringVar(&v.key, "key", "", "`FILE` the public key, cosign.pub")
			f.StringVar(&v.identity, "identity", "", "`HOST/REPOSITORY` the repository that was signed, or any, also for bundles of cosign 3 (default: the one of the reference)")
			f.StringVar(&v.lock, "lock", "", "`FILE` writes the digest of the tag into this file: plugins.lock beside the configuration")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if len(args) != 1 || v.key == "" {
					return cli.Mistakef("name a key and a reference, as in router plugin verify -key cosign.pub oci://registry.example.com/team/dns:1.2")
				}
				return v.run(ctx, s, args[0])
			}
		},
	}
}

// verification has the flags of the command verify.
type verification struct {
	*connection

	key, identity, lock string
}

func (v verification) run(ctx context.Context, s cli.Streams, text string) error {
	pem, err := cli.ReadFile(s, v.key)
	if err != nil {
		return cli.Invalid(err)
	}
	key, err := oci.ParseKey(pem)
	if err != nil {
		return cli.Invalid(fmt.Errorf("%s: %w", v.key, err))
	}
	if ref, err := oci.Parse(text); err == nil && ref.Tag == "" && v.lock != "" {
		return cli.Mistakef("%s has no tag: -lock pins a tag", ref)
	}
	digest, m, err := v.fetch(ctx, text)
	if err != nil {
		return err
	}
	ref, repo, err := v.open(text)
	if err != nil {
		return err
	}
	defer repo.Close()
	if err := repo.Verify(ctx, digest, key, v.identity); err != nil {
		return fmt.Errorf("%s: %w", ref.WithDigest(digest), err)
	}
	cli.Printf(s.Out, "module     %s\nsha256     %s\nsignature  valid\nkey        %s\n", ref.WithDigest(digest), sumOf(m.Bytes), key)
	if v.lock == "" {
		return nil
	}
	return cli.Invalid(lockfile.Lock(v.lock, ref, digest, "cosign, key "+key.String()))
}
