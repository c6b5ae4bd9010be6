//go:build tools

// Package dex keeps the version of the OIDC provider that the tests build.
package dex

import _ "github.com/dexidp/dex/cmd/dex"
