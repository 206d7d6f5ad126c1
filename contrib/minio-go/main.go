// Command minio-go runs MinIO's Go client for S3, unmodified, against a server of its own.
//
//	go run . -stele ../../target/release/stele
//
// It starts `stele up` on small file drives in a temporary directory, and prints a line for each check. The exit code is 1
// if a check fails. It needs the Go module proxy once, and is no part of the tests: building the client takes a minute.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/cors"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/lifecycle"
	"github.com/minio/minio-go/v7/pkg/sse"
	"github.com/minio/minio-go/v7/pkg/tags"
)

const bucket = "records"

// site is a running server and a client of it.
type site struct {
	stele, dir, host string
	key              map[string]any
	*minio.Client
	core minio.Core
}

func start(stele, dir string) (*site, *exec.Cmd, error) {
	server := exec.Command(stele, "up", "--json", "--listen", "127.0.0.1:0", "--drive-size", "256MiB", "--dir", dir)
	server.Stderr, _ = os.Create(filepath.Join(dir, "..", "server.log"))
	output, err := server.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		return nil, server, fmt.Errorf("stele up said nothing: %w", err)
	}
	var ready map[string]any
	if err := json.Unmarshal(line, &ready); err != nil {
		return nil, server, fmt.Errorf("stele up said %q", line)
	}
	text, err := os.ReadFile(ready["key_file"].(string))
	if err != nil {
		return nil, server, err
	}
	s := &site{stele: stele, dir: dir}
	if err := json.Unmarshal(text, &s.key); err != nil {
		return nil, server, err
	}
	endpoint, err := url.Parse(ready["endpoint"].(string))
	if err != nil {
		return nil, server, err
	}
	s.host = endpoint.Host
	access, secret := s.key["access_key"].(string), s.key["secret_key"].(string)
	options := &minio.Options{
		Creds: credentials.NewStaticV4(access, secret, ""), Region: "us-east-1", TrailingHeaders: true,
	}
	s.Client, err = minio.New(s.host, options)
	s.core = minio.Core{Client: s.Client}
	return s, server, err
}

func content(length int) []byte {
	data := make([]byte, length)
	_, _ = rand.Read(data)
	return data
}

func (s *site) put(ctx context.Context, key string, data []byte, options minio.PutObjectOptions) (minio.UploadInfo, error) {
	return s.PutObject(ctx, bucket, key, bytes.NewReader(data), int64(len(data)), options)
}

func (s *site) read(ctx context.Context, key string, options minio.GetObjectOptions) ([]byte, error) {
	object, err := s.GetObject(ctx, bucket, key, options)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	return io.ReadAll(object)
}

// refused expects an S3 error with this code.
func refused(err error, code string) error {
	if err == nil {
		return fmt.Errorf("it was allowed, not refused with %s", code)
	}
	if found := minio.ToErrorResponse(err).Code; found != code {
		return fmt.Errorf("%s instead of %s: %w", found, code, err)
	}
	return nil
}

func same(found, wanted any) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%v instead of %v", found, wanted)
	}
	return nil
}

func equal(found, wanted []byte) error {
	if !bytes.Equal(found, wanted) {
		return fmt.Errorf("%d bytes came back that differ from the %d that were stored", len(found), len(wanted))
	}
	return nil
}

type check struct {
	name string
	run  func(context.Context, *site) error
}

var checks = []check{
	{"MakeBucket with object locking, BucketExists, GetBucketVersioning", func(ctx context.Context, s *site) error {
		if err := s.MakeBucket(ctx, bucket, minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
			return err
		}
		there, err := s.BucketExists(ctx, bucket)
		if err != nil || !there {
			return fmt.Errorf("it is not there: %w", err)
		}
		versioning, err := s.GetBucketVersioning(ctx, bucket)
		return errors.Join(err, same(versioning.Status, "Enabled"))
	}},
	{"PutObject, StatObject, GetObject, a range", func(ctx context.Context, s *site) error {
		data := content(70_000)
		options := minio.PutObjectOptions{ContentType: "text/csv", UserMetadata: map[string]string{"case": "smith"}}
		if _, err := s.put(ctx, "small", data, options); err != nil {
			return err
		}
		info, err := s.StatObject(ctx, bucket, "small", minio.StatObjectOptions{})
		if err != nil {
			return err
		}
		found, err := s.read(ctx, "small", minio.GetObjectOptions{})
		part := minio.GetObjectOptions{}
		_ = part.SetRange(10, 69_000)
		middle, err2 := s.read(ctx, "small", part)
		return errors.Join(err, err2, same(info.Size, 70_000), same(info.ContentType, "text/csv"),
			same(info.UserMetadata["Case"], "smith"), equal(found, data), equal(middle, data[10:69_001]))
	}},
	{"PutObject of unknown length, in parts, with CRC32C", func(ctx context.Context, s *site) error {
		data := content(17 << 20)
		options := minio.PutObjectOptions{PartSize: 5 << 20, Checksum: minio.ChecksumCRC32C}
		if _, err := s.PutObject(ctx, bucket, "large", io.MultiReader(bytes.NewReader(data)), -1, options); err != nil {
			return err
		}
		found, err := s.read(ctx, "large", minio.GetObjectOptions{})
		return errors.Join(err, equal(found, data))
	}},
	{"FPutObject, FGetObject", func(ctx context.Context, s *site) error {
		from, to := filepath.Join(s.dir, "..", "from"), filepath.Join(s.dir, "..", "to")
		data := content(6 << 20)
		if err := os.WriteFile(from, data, 0o600); err != nil {
			return err
		}
		if _, err := s.FPutObject(ctx, bucket, "file", from, minio.PutObjectOptions{}); err != nil {
			return err
		}
		if err := s.FGetObject(ctx, bucket, "file", to, minio.GetObjectOptions{}); err != nil {
			return err
		}
		found, err := os.ReadFile(to)
		return errors.Join(err, equal(found, data))
	}},
	{"COMPLIANCE: no deletion, no shortening, an extension", func(ctx context.Context, s *site) error {
		until := time.Now().Add(24 * time.Hour).UTC()
		options := minio.PutObjectOptions{Mode: minio.Compliance, RetainUntilDate: until}
		stored, err := s.put(ctx, "kept", []byte("kept"), options)
		if err != nil {
			return err
		}
		remove := minio.RemoveObjectOptions{VersionID: stored.VersionID}
		bypass := minio.RemoveObjectOptions{VersionID: stored.VersionID, GovernanceBypass: true}
		mode := minio.Compliance
		retain := func(date time.Time) error {
			return s.PutObjectRetention(ctx, bucket, "kept", minio.PutObjectRetentionOptions{
				GovernanceBypass: true, Mode: &mode, RetainUntilDate: &date, VersionID: stored.VersionID,
			})
		}
		later := until.Add(time.Hour)
		found, err := s.read(ctx, "kept", minio.GetObjectOptions{VersionID: stored.VersionID})
		return errors.Join(
			refused(s.RemoveObject(ctx, bucket, "kept", remove), "AccessDenied"),
			refused(s.RemoveObject(ctx, bucket, "kept", bypass), "AccessDenied"),
			refused(retain(until.Add(-time.Hour)), "AccessDenied"),
			retain(later), err, equal(found, []byte("kept")),
		)
	}},
	{"GOVERNANCE: only the bypass deletes", func(ctx context.Context, s *site) error {
		stored, err := s.put(ctx, "governed", []byte("governed"), minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		mode, until := minio.Governance, time.Now().Add(24*time.Hour).UTC()
		options := minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until, VersionID: stored.VersionID}
		if err := s.PutObjectRetention(ctx, bucket, "governed", options); err != nil {
			return err
		}
		found, _, err := s.GetObjectRetention(ctx, bucket, "governed", stored.VersionID)
		if err != nil {
			return err
		}
		remove := minio.RemoveObjectOptions{VersionID: stored.VersionID}
		bypass := minio.RemoveObjectOptions{VersionID: stored.VersionID, GovernanceBypass: true}
		return errors.Join(same(*found, mode),
			refused(s.RemoveObject(ctx, bucket, "governed", remove), "AccessDenied"),
			s.RemoveObject(ctx, bucket, "governed", bypass))
	}},
	{"legal hold", func(ctx context.Context, s *site) error {
		stored, err := s.put(ctx, "held", []byte("held"), minio.PutObjectOptions{LegalHold: minio.LegalHoldEnabled})
		if err != nil {
			return err
		}
		remove := minio.RemoveObjectOptions{VersionID: stored.VersionID, GovernanceBypass: true}
		off := minio.LegalHoldDisabled
		hold, err := s.GetObjectLegalHold(ctx, bucket, "held", minio.GetObjectLegalHoldOptions{VersionID: stored.VersionID})
		if err != nil {
			return err
		}
		return errors.Join(same(*hold, "ON"),
			refused(s.RemoveObject(ctx, bucket, "held", remove), "AccessDenied"),
			s.PutObjectLegalHold(ctx, bucket, "held", minio.PutObjectLegalHoldOptions{Status: &off, VersionID: stored.VersionID}),
			s.RemoveObject(ctx, bucket, "held", remove))
	}},
	{"default retention of the bucket", func(ctx context.Context, s *site) error {
		const other = "defaults"
		if err := s.MakeBucket(ctx, other, minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
			return err
		}
		mode, days, unit := minio.Governance, uint(30), minio.Days
		if err := s.SetBucketObjectLockConfig(ctx, other, &mode, &days, &unit); err != nil {
			return err
		}
		foundMode, foundDays, _, err := s.GetBucketObjectLockConfig(ctx, other)
		if err != nil {
			return err
		}
		return errors.Join(same(*foundMode, mode), same(*foundDays, days))
	}},
	{"ListObjects with and without a delimiter, versions and markers", func(ctx context.Context, s *site) error {
		for _, key := range []string{"list/a/1", "list/a/2", "list/b/1", "list/c"} {
			if _, err := s.put(ctx, key, []byte(key), minio.PutObjectOptions{}); err != nil {
				return err
			}
		}
		if err := s.RemoveObject(ctx, bucket, "list/c", minio.RemoveObjectOptions{}); err != nil {
			return err
		}
		list := func(options minio.ListObjectsOptions) (names []string, err error) {
			options.Prefix = "list/"
			for object := range s.ListObjects(ctx, bucket, options) {
				if object.Err != nil {
					return nil, object.Err
				}
				name := object.Key
				if object.IsDeleteMarker {
					name += " marker"
				}
				names = append(names, name)
			}
			sort.Strings(names)
			return names, nil
		}
		flat, err := list(minio.ListObjectsOptions{Recursive: true})
		folded, err2 := list(minio.ListObjectsOptions{})
		first, err3 := list(minio.ListObjectsOptions{Recursive: true, UseV1: true})
		versions, err4 := list(minio.ListObjectsOptions{Recursive: true, WithVersions: true})
		return errors.Join(err, err2, err3, err4,
			same(flat, []string{"list/a/1", "list/a/2", "list/b/1"}), same(first, flat),
			same(folded, []string{"list/a/", "list/b/"}),
			same(versions, []string{"list/a/1", "list/a/2", "list/b/1", "list/c", "list/c marker"}))
	}},
	{"tags", func(ctx context.Context, s *site) error {
		set, err := tags.NewTags(map[string]string{"case": "smith", "year": "2026"}, true)
		if err != nil {
			return err
		}
		if err := s.PutObjectTagging(ctx, bucket, "small", set, minio.PutObjectTaggingOptions{}); err != nil {
			return err
		}
		found, err := s.GetObjectTagging(ctx, bucket, "small", minio.GetObjectTaggingOptions{})
		if err != nil {
			return err
		}
		return errors.Join(same(found.ToMap(), set.ToMap()),
			s.RemoveObjectTagging(ctx, bucket, "small", minio.RemoveObjectTaggingOptions{}))
	}},
	{"CopyObject, ComposeObject", func(ctx context.Context, s *site) error {
		whole, err := s.read(ctx, "large", minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		source := minio.CopySrcOptions{Bucket: bucket, Object: "large"}
		if _, err := s.CopyObject(ctx, minio.CopyDestOptions{Bucket: bucket, Object: "copy"}, source); err != nil {
			return err
		}
		if _, err := s.ComposeObject(ctx, minio.CopyDestOptions{Bucket: bucket, Object: "twice"}, source, source); err != nil {
			return err
		}
		copied, err := s.read(ctx, "copy", minio.GetObjectOptions{})
		twice, err2 := s.read(ctx, "twice", minio.GetObjectOptions{})
		return errors.Join(err, err2, equal(copied, whole), equal(twice, append(whole, whole...)))
	}},
	{"presigned GET and PUT, a POST policy", func(ctx context.Context, s *site) error {
		put, err := s.PresignedPutObject(ctx, bucket, "presigned", time.Minute)
		if err != nil {
			return err
		}
		request, _ := http.NewRequestWithContext(ctx, http.MethodPut, put.String(), strings.NewReader("presigned"))
		if err := answered(http.DefaultClient.Do(request)); err != nil {
			return err
		}
		get, err := s.PresignedGetObject(ctx, bucket, "presigned", time.Minute, nil)
		if err != nil {
			return err
		}
		if err := answered(http.Get(get.String())); err != nil {
			return err
		}
		policy := minio.NewPostPolicy()
		if err := errors.Join(policy.SetBucket(bucket), policy.SetKey("posted"),
			policy.SetExpires(time.Now().UTC().Add(time.Minute)), policy.SetContentLengthRange(1, 100)); err != nil {
			return err
		}
		address, fields, err := s.PresignedPostPolicy(ctx, policy)
		if err != nil {
			return err
		}
		var form bytes.Buffer
		writer := multipart.NewWriter(&form)
		for name, value := range fields {
			_ = writer.WriteField(name, value)
		}
		file, _ := writer.CreateFormFile("file", "posted")
		_, _ = file.Write([]byte("posted"))
		_ = writer.Close()
		if err := answered(http.Post(address.String(), writer.FormDataContentType(), &form)); err != nil {
			return err
		}
		found, err := s.read(ctx, "posted", minio.GetObjectOptions{})
		return errors.Join(err, equal(found, []byte("posted")))
	}},
	{"RemoveObjects: an error for each locked key, and none for the request", func(ctx context.Context, s *site) error {
		stored, err := s.put(ctx, "free", []byte("free"), minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		kept, err := s.StatObject(ctx, bucket, "kept", minio.StatObjectOptions{})
		if err != nil {
			return err
		}
		objects := make(chan minio.ObjectInfo, 2)
		objects <- minio.ObjectInfo{Key: "free", VersionID: stored.VersionID}
		objects <- minio.ObjectInfo{Key: "kept", VersionID: kept.VersionID}
		close(objects)
		var failed []string
		for result := range s.RemoveObjectsWithResult(ctx, bucket, objects, minio.RemoveObjectsOptions{}) {
			if result.Err != nil {
				failed = append(failed, result.ObjectName)
			}
		}
		return same(failed, []string{"kept"})
	}},
	{"an upload that is given up", func(ctx context.Context, s *site) error {
		id, err := s.core.NewMultipartUpload(ctx, bucket, "given-up", minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		part := content(5 << 20)
		_, err = s.core.PutObjectPart(ctx, bucket, "given-up", id, 1, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{})
		if err != nil {
			return err
		}
		var open []string
		for upload := range s.ListIncompleteUploads(ctx, bucket, "given-up", true) {
			open = append(open, upload.Key)
		}
		return errors.Join(same(open, []string{"given-up"}), s.RemoveIncompleteUpload(ctx, bucket, "given-up"))
	}},
	{"lifecycle, policy, CORS, encryption of the bucket", func(ctx context.Context, s *site) error {
		rules := lifecycle.NewConfiguration()
		rules.Rules = []lifecycle.Rule{{
			ID: "old", Status: "Enabled", RuleFilter: lifecycle.Filter{Prefix: "tmp/"},
			Expiration: lifecycle.Expiration{Days: 30},
		}}
		if err := s.SetBucketLifecycle(ctx, bucket, rules); err != nil {
			return err
		}
		found, err := s.GetBucketLifecycle(ctx, bucket)
		if err != nil {
			return err
		}
		policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject"],` +
			`"Resource":["arn:aws:s3:::` + bucket + `/public/*"]}]}`
		if err := s.SetBucketPolicy(ctx, bucket, policy); err != nil {
			return err
		}
		said, err := s.GetBucketPolicy(ctx, bucket)
		if err != nil {
			return err
		}
		if _, err := s.put(ctx, "public/page", []byte("public"), minio.PutObjectOptions{}); err != nil {
			return err
		}
		open := answered(http.Get("http://" + s.host + "/" + bucket + "/public/page"))
		origins := cors.NewConfig([]cors.Rule{{AllowedOrigin: []string{"https://example.org"}, AllowedMethod: []string{"GET"}}})
		if err := s.SetBucketCors(ctx, bucket, origins); err != nil {
			return err
		}
		err = s.SetBucketEncryption(ctx, bucket, sse.NewConfigurationSSES3())
		return errors.Join(err, open, same(found.Rules[0].ID, "old"), same(strings.Contains(said, "public/*"), true))
	}},
	{"a bucket that is not empty stays", func(ctx context.Context, s *site) error {
		return refused(s.RemoveBucket(ctx, bucket), "BucketNotEmpty")
	}},
	{"missing keys and buckets", func(ctx context.Context, s *site) error {
		_, err := s.StatObject(ctx, bucket, "missing", minio.StatObjectOptions{})
		_, err2 := s.GetBucketVersioning(ctx, "nothing-of-this-name")
		return errors.Join(refused(err, "NoSuchKey"), refused(err2, "NoSuchBucket"))
	}},
}

func answered(answer *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil
}

func run(stele string) error {
	home, err := os.MkdirTemp("", "stele-minio-go-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	dir := filepath.Join(home, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s, server, err := start(stele, dir)
	if server != nil && server.Process != nil {
		defer func() {
			_ = server.Process.Signal(os.Interrupt)
			_ = server.Wait()
		}()
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	failures := 0
	for _, check := range checks {
		if err := check.run(ctx, s); err != nil {
			failures++
			fmt.Printf("FAILED  %s: %v\n", check.name, err)
			continue
		}
		fmt.Printf("ok      %s\n", check.name)
	}
	fmt.Printf("%d passed, %d failed\n", len(checks)-failures, failures)
	if failures > 0 {
		return errors.New("a check failed")
	}
	return nil
}

func main() {
	stele := flag.String("stele", "target/release/stele", "the command")
	flag.Parse()
	path, err := filepath.Abs(*stele)
	if err == nil {
		err = run(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "minio-go:", err)
		os.Exit(1)
	}
}
