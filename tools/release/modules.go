package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// readModules returns the compiler's record in a binary: its modules, and the version of Go.
func readModules(binary []byte) (*debug.BuildInfo, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("its modules cannot be read: %w", err)
	}
	return info, nil
}

// bill returns the bill of materials (SBOM) of a binary: the router, Go's standard library and each
// module.
func (s source) bill(p platform, router []byte, modules *debug.BuildInfo) ([]byte, error) {
	const root = "deltarouter"
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{
		Timestamp: s.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: root, Type: cdx.ComponentTypeApplication, Name: "deltarouter", Version: s.version,
			Description: "router for " + p.String(),
			PackageURL:  "pkg:golang/" + modules.Main.Path + "@" + url.QueryEscape(s.version),
			Hashes:      &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(router))}},
			Licenses:    &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
	}
	components := []cdx.Component{library("stdlib", strings.TrimPrefix(modules.GoVersion, "go"))}
	for _, m := range modules.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, library(m.Path, m.Version))
	}
	engine, err := s.engine()
	if err != nil {
		return nil, err
	}
	components = append(components, engine...)
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bill.Components = &components
	bill.Dependencies = &[]cdx.Dependency{{Ref: root, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("the bill of materials for %s: %w", p, err)
	}
	return out.Bytes(), nil
}

func library(path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}

// The JavaScript engine, which is part of a router that was built where it was.
const (
	engineFolder  = "pkg/plugins/js/engine"
	enginePackage = "quickjs-wasi" // of npm
	engineVersion = "3.6.2"        // also in tools/jsengine.sh
)

// engine returns the JavaScript engine as a component, or nothing if the checkout has none.
func (s source) engine() ([]cdx.Component, error) {
	content, err := os.ReadFile(filepath.Join(s.root, engineFolder, "quickjs.wasm"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the JavaScript engine: %w", err)
	}
	purl := "pkg:npm/" + enginePackage + "@" + engineVersion
	return []cdx.Component{{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: enginePackage, Version: engineVersion, PackageURL: purl,
		Description: "quickjs.wasm: QuickJS-NG for WASI",
		Hashes:      &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
		Licenses:    &cdx.Licenses{{License: &cdx.License{ID: "MIT"}}},
	}}, nil
}

// licenses returns the licences of Go and of all modules of a binary as one text.
func (s source) licenses(ctx context.Context, modules *debug.BuildInfo) ([]byte, error) {
	goroot, err := s.run(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := addLicense(&out, "Go", strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}
	list := []string{"list", "-mod=readonly", "-m", "-f", "{{.Dir}}"}
	for _, m := range modules.Deps {
		list = append(list, m.Path)
	}
	listed, err := s.run(ctx, "go", list...)
	if err != nil {
		return nil, err
	}
	folders := strings.Split(strings.TrimSuffix(string(listed), "\n"), "\n")
	if len(folders) != len(modules.Deps) {
		return nil, fmt.Errorf("go list -m found %d of %d modules", len(folders), len(modules.Deps))
	}
	for i, m := range modules.Deps {
		if err := addLicense(&out, m.Path+" "+m.Version, folders[i]); err != nil {
			return nil, err
		}
	}
	if err := addLicense(&out, "The JavaScript engine", filepath.Join(s.root, engineFolder)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// legal matches the names of files with licences and notices.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// addLicense appends the licence and the notices of one folder.
func addLicense(out *bytes.Buffer, title, folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the licence of %s: %w", title, err)
	}
	before := out.Len()
	for _, f := range files {
		if f.IsDir() || !legal.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "==== %s: %s\n\n%s\n\n", title, f.Name(), bytes.TrimSpace(text))
	}
	if out.Len() == before {
		return fmt.Errorf("%s: no licence in %q: a release must contain it", title, folder)
	}
	return nil
}

// run runs a program in the checkout and returns its output.
func (s source) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, said(err))
	}
	return out, nil
}
